// Host twin of global_if.cuh.
template <int WIDTH>
inline Vector<WIDTH> load_global_if(const float* address, bool inside, int line = __builtin_LINE())
{
    Vector<WIDTH> value = {};
    if (inside)
        value = load_global<WIDTH>(address, line);
    return value;
}

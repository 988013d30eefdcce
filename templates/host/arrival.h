// Host twin of arrival.cuh.
inline unsigned count_arrival(unsigned* counter, unsigned last, int line = __builtin_LINE())
{
    return emulate::count_arrival(counter, last, line);
}

// Host twin of registers.cuh.
template <int COUNT>
inline void give_registers(int line = __builtin_LINE())
{
    emulate::change_registers(COUNT, line);
}

template <int COUNT>
inline void take_registers(int line = __builtin_LINE())
{
    emulate::change_registers(COUNT, line);
}

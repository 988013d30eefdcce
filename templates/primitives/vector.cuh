// WIDTH floats that move as one access of 4 * WIDTH bytes.
template <int WIDTH>
struct alignas(4 * WIDTH) Vector {
    float at[WIDTH];
};

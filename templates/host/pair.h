// Host twin of pair.cuh.
inline void multiply_add_pair(float* sums, float factor, const float* others)
{
    sums[0] = fmaf(factor, others[0], sums[0]);
    sums[1] = fmaf(factor, others[1], sums[1]);
}

// Host twin of cluster.cuh.
inline void cluster_barrier(int line = __builtin_LINE())
{
    emulate::cluster_barrier(line);
}

template <int WIDTH>
inline Vector<WIDTH> load_cluster(const float* shared, int rank, int line = __builtin_LINE())
{
    Vector<WIDTH> value;
    emulate::load_cluster(shared, rank, WIDTH, value.at, line);
    return value;
}

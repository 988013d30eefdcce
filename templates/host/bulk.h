// Host twin of bulk.cuh.
using emulate::TensorMap;

inline void bulk_load_2d(
    float* shared, const TensorMap& map, int x, int y, Mbarrier* barrier, int line = __builtin_LINE())
{
    emulate::bulk_load(shared, map, x, y, barrier, line);
}

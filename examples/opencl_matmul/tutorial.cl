// The matrix product that tutorials of OpenCL end with: c = a b, row-major, square.
// A work-group of 16x16 makes 16x16 elements, one a work-item, out of 16x16 pieces of both factors in local memory.
// The size must be a multiple of 16: nothing here stops at the edges.

#define TILE 16

__kernel __attribute__((reqd_work_group_size(TILE, TILE, 1)))
void matmul(__global const float *a, __global const float *b, __global float *c, const int size)
{
    __local float pa[TILE][TILE];
    __local float pb[TILE][TILE];
    const int x = get_local_id(0), y = get_local_id(1);
    const int col = get_global_id(0), row = get_global_id(1);
    float sum = 0.0f;
    for (int k = 0; k < size; k += TILE) {
        pa[y][x] = a[row * size + k + x];
        pb[y][x] = b[(k + y) * size + col];
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int i = 0; i < TILE; i++)
            sum += pa[y][i] * pb[i][x];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    c[row * size + col] = sum;
}

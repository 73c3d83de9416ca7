// The product of two square matrices whose size is a multiple of 64. A work-group of 16 x 16 gives a tile of 64 x 64,
// each work-item 4 x 4 elements of it, 16 apart so that neighbours read neighbouring memory. Sums of 16 products are in
// T, those of these in float: half alone stops growing at 2,048.
#ifdef HALF
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#endif

#define TILE 64
#define DEPTH 16

__kernel __attribute__((reqd_work_group_size(16, 16, 1)))
void product(__global const T *a, __global const T *b, __global T *c, const int n) {
    __local T left[DEPTH][TILE], right[DEPTH][TILE];
    const int x = get_local_id(0), y = get_local_id(1);
    const int column = get_group_id(0) * TILE, row = get_group_id(1) * TILE;
    float sum[4][4];
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) sum[i][j] = 0;
    for (int k = 0; k < n; k += DEPTH) {
        for (int i = 0; i < 4; i++) {
            left[x][y + 16 * i] = a[(row + y + 16 * i) * n + k + x];
            right[y][x + 16 * i] = b[(k + y) * n + column + x + 16 * i];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        T part[4][4] = {{0}};
        for (int d = 0; d < DEPTH; d++)
            #pragma unroll
            for (int i = 0; i < 4; i++)
                #pragma unroll
                for (int j = 0; j < 4; j++)
                    part[i][j] = fma(left[d][y + 16 * i], right[d][x + 16 * j], part[i][j]);
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 4; j++) sum[i][j] += part[i][j];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) c[(row + y + 16 * i) * n + column + x + 16 * j] = sum[i][j];
}

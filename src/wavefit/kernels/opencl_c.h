/* The part of OpenCL C 1.2's library that compute kernels use, for clang's AMDGPU target without any library beside it.

   The code objects made with it tell resources (registers, local memory, spills, instructions); they are not for
   running. What the backend has instructions for is lowered to them. The functions marked "about" compute the right
   thing to a few units in the last place over the usual range, with about as many instructions and registers as the
   driver's library takes; the driver's are exact to OpenCL's bounds and handle every special value.
   Not here: images, pipes, printf, double functions. */

#define _OV static inline __attribute__((overloadable, always_inline))

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef __SIZE_TYPE__ size_t;
typedef __PTRDIFF_TYPE__ ptrdiff_t;
typedef __INTPTR_TYPE__ intptr_t;
typedef __UINTPTR_TYPE__ uintptr_t;

#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#define _VECTOR(T, N) typedef T T##N __attribute__((ext_vector_type(N)));
#define _VECTORS(T) _VECTOR(T, 2) _VECTOR(T, 3) _VECTOR(T, 4) _VECTOR(T, 8) _VECTOR(T, 16)
_VECTORS(char) _VECTORS(uchar) _VECTORS(short) _VECTORS(ushort) _VECTORS(int) _VECTORS(uint) _VECTORS(long)
_VECTORS(ulong) _VECTORS(float) _VECTORS(double) _VECTORS(half)

#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define HUGE_VALF __builtin_inff()
#define MAXFLOAT 3.40282347e+38f
#define FLT_MAX 3.40282347e+38f
#define FLT_MIN 1.17549435e-38f
#define FLT_EPSILON 1.19209290e-7f
#define HALF_MAX 65504.0f
#define CHAR_BIT 8
#define CHAR_MAX 127
#define CHAR_MIN (-128)
#define SCHAR_MAX 127
#define SCHAR_MIN (-128)
#define UCHAR_MAX 255
#define SHRT_MAX 32767
#define SHRT_MIN (-32768)
#define USHRT_MAX 65535
#define INT_MAX 2147483647
#define INT_MIN (-2147483647 - 1)
#define UINT_MAX 0xffffffffU
#define LONG_MAX 0x7fffffffffffffffL
#define LONG_MIN (-0x7fffffffffffffffL - 1)
#define ULONG_MAX 0xffffffffffffffffUL
#define M_PI_F 3.14159274101257f
#define M_PI_2_F 1.57079637050629f
#define M_1_PI_F 0.318309873342514f
#define M_2_PI_F 0.636619746685028f
#define M_E_F 2.71828174591064f
#define M_LOG2E_F 1.44269502162933f
#define M_LN2_F 0.693147182464600f
#define M_SQRT2_F 1.41421353816986f
#define M_SQRT1_2_F 0.707106769084930f

/* ---- Work-items: code object version 5's implicit arguments (LLVM, AMDGPUUsage, "Code Object V5 Metadata") ---- */

_OV size_t _implicit(uint byte) {
    return *(__constant ulong *)((__constant char *)__builtin_amdgcn_implicitarg_ptr() + byte);
}
_OV uint get_work_dim(void) {
    return *(__constant ushort *)((__constant char *)__builtin_amdgcn_implicitarg_ptr() + 64);
}
_OV size_t get_local_id(uint d) {
    return d == 0 ? __builtin_amdgcn_workitem_id_x()
         : d == 1 ? __builtin_amdgcn_workitem_id_y()
         : d == 2 ? __builtin_amdgcn_workitem_id_z() : 0;
}
_OV size_t get_group_id(uint d) {
    return d == 0 ? __builtin_amdgcn_workgroup_id_x()
         : d == 1 ? __builtin_amdgcn_workgroup_id_y()
         : d == 2 ? __builtin_amdgcn_workgroup_id_z() : 0;
}
_OV size_t get_local_size(uint d) {
    return d == 0 ? __builtin_amdgcn_workgroup_size_x()
         : d == 1 ? __builtin_amdgcn_workgroup_size_y()
         : d == 2 ? __builtin_amdgcn_workgroup_size_z() : 1;
}
_OV size_t get_global_size(uint d) {
    return d == 0 ? __builtin_amdgcn_grid_size_x()
         : d == 1 ? __builtin_amdgcn_grid_size_y()
         : d == 2 ? __builtin_amdgcn_grid_size_z() : 1;
}
_OV size_t get_global_offset(uint d) { return d < 3 ? _implicit(40 + 8 * d) : 0; }
_OV size_t get_global_id(uint d) { return get_group_id(d) * get_local_size(d) + get_local_id(d) + get_global_offset(d); }
_OV size_t get_num_groups(uint d) {
    return d < 3 ? *(__constant uint *)((__constant char *)__builtin_amdgcn_implicitarg_ptr() + 4 * d) : 1;
}

typedef uint cl_mem_fence_flags;
#define CLK_LOCAL_MEM_FENCE 1
#define CLK_GLOBAL_MEM_FENCE 2
_OV void mem_fence(cl_mem_fence_flags f) { __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "workgroup"); }
_OV void read_mem_fence(cl_mem_fence_flags f) { __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup"); }
_OV void write_mem_fence(cl_mem_fence_flags f) { __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup"); }
_OV __attribute__((convergent)) void barrier(cl_mem_fence_flags f) {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
#define work_group_barrier barrier

/* ---- Conversions ---- */

#define _SCALARS(F) F(char) F(uchar) F(short) F(ushort) F(int) F(uint) F(long) F(ulong) F(float) F(double) F(half)
#define as_char(x) __builtin_astype((x), char)
#define as_uchar(x) __builtin_astype((x), uchar)
#define as_short(x) __builtin_astype((x), short)
#define as_ushort(x) __builtin_astype((x), ushort)
#define as_int(x) __builtin_astype((x), int)
#define as_int2(x) __builtin_astype((x), int2)
#define as_int4(x) __builtin_astype((x), int4)
#define as_uint(x) __builtin_astype((x), uint)
#define as_uint2(x) __builtin_astype((x), uint2)
#define as_uint4(x) __builtin_astype((x), uint4)
#define as_long(x) __builtin_astype((x), long)
#define as_ulong(x) __builtin_astype((x), ulong)
#define as_float(x) __builtin_astype((x), float)
#define as_float2(x) __builtin_astype((x), float2)
#define as_float4(x) __builtin_astype((x), float4)
#define as_half(x) __builtin_astype((x), half)
#define as_half2(x) __builtin_astype((x), half2)
#define as_half4(x) __builtin_astype((x), half4)
#define as_half8(x) __builtin_astype((x), half8)
#define as_char4(x) __builtin_astype((x), char4)
#define as_uchar4(x) __builtin_astype((x), uchar4)
#define as_char16(x) __builtin_astype((x), char16)
#define as_uchar16(x) __builtin_astype((x), uchar16)
#define as_short2(x) __builtin_astype((x), short2)
#define as_ushort2(x) __builtin_astype((x), ushort2)

/* convert_T(x), and convert_Tn(x) for vectors; _rte rounds to even first. */
#define _CONVERT(T) \
    _OV T convert_##T(char x) { return (T)x; } \
    _OV T convert_##T(uchar x) { return (T)x; } \
    _OV T convert_##T(short x) { return (T)x; } \
    _OV T convert_##T(ushort x) { return (T)x; } \
    _OV T convert_##T(int x) { return (T)x; } \
    _OV T convert_##T(uint x) { return (T)x; } \
    _OV T convert_##T(long x) { return (T)x; } \
    _OV T convert_##T(ulong x) { return (T)x; } \
    _OV T convert_##T(float x) { return (T)x; } \
    _OV T convert_##T(double x) { return (T)x; } \
    _OV T convert_##T(half x) { return (T)x; } \
    _OV T convert_##T##_rte(float x) { return (T)__builtin_elementwise_roundeven(x); } \
    _OV T convert_##T##_rtz(float x) { return (T)x; }
_SCALARS(_CONVERT)

#define _CONVERT_FROM(T, N, S) _OV T##N convert_##T##N(S##N x) { return __builtin_convertvector(x, T##N); }
#define _CONVERT_N(T, N) \
    _CONVERT_FROM(T, N, char) _CONVERT_FROM(T, N, uchar) _CONVERT_FROM(T, N, short) _CONVERT_FROM(T, N, ushort) \
    _CONVERT_FROM(T, N, int) _CONVERT_FROM(T, N, uint) _CONVERT_FROM(T, N, long) _CONVERT_FROM(T, N, ulong) \
    _CONVERT_FROM(T, N, float) _CONVERT_FROM(T, N, half) \
    _OV T##N convert_##T##N##_rte(float##N x) { \
        return __builtin_convertvector(__builtin_elementwise_roundeven(x), T##N); }
#define _CONVERT_VECTORS(T) _CONVERT_N(T, 2) _CONVERT_N(T, 3) _CONVERT_N(T, 4) _CONVERT_N(T, 8) _CONVERT_N(T, 16)
_SCALARS(_CONVERT_VECTORS)

/* Saturating, from float and int. */
#define _SAT(T, LOW, HIGH) \
    _OV T convert_##T##_sat(float x) { \
        return (T)__builtin_elementwise_min(__builtin_elementwise_max(x, (float)(LOW)), (float)(HIGH)); } \
    _OV T convert_##T##_sat_rte(float x) { return convert_##T##_sat(__builtin_elementwise_roundeven(x)); } \
    _OV T convert_##T##_sat(int x) { \
        return (T)__builtin_elementwise_min(__builtin_elementwise_max(x, (int)(LOW)), (int)(HIGH)); } \
    _SAT_N(T, 2, LOW, HIGH) _SAT_N(T, 4, LOW, HIGH) _SAT_N(T, 8, LOW, HIGH) _SAT_N(T, 16, LOW, HIGH)
#define _SAT_N(T, N, LOW, HIGH) \
    _OV T##N convert_##T##N##_sat(float##N x) { \
        return __builtin_convertvector(__builtin_elementwise_min( \
            __builtin_elementwise_max(x, (float##N)((float)(LOW))), (float##N)((float)(HIGH))), T##N); } \
    _OV T##N convert_##T##N##_sat_rte(float##N x) { return convert_##T##N##_sat(__builtin_elementwise_roundeven(x)); } \
    _OV T##N convert_##T##N##_sat(int##N x) { \
        return __builtin_convertvector(__builtin_elementwise_min( \
            __builtin_elementwise_max(x, (int##N)((int)(LOW))), (int##N)((int)(HIGH))), T##N); }
_SAT(char, -128, 127) _SAT(uchar, 0, 255) _SAT(short, -32768, 32767) _SAT(ushort, 0, 65535)

/* ---- Vector loads and stores: an element's alignment is enough ---- */

#define _LOAD(T, N, A) \
    _OV T##N vload##N(size_t i, A const T *p) { \
        typedef T##N unaligned __attribute__((aligned(sizeof(T)))); \
        return *(A const unaligned *)(p + i * N); } \
    _OV void vstore##N(T##N v, size_t i, A T *p) { \
        typedef T##N unaligned __attribute__((aligned(sizeof(T)))); \
        *(A unaligned *)(p + i * N) = v; }
#define _LOAD3(T, A) \
    _OV T##3 vload3(size_t i, A const T *p) { return (T##3)(p[i * 3], p[i * 3 + 1], p[i * 3 + 2]); } \
    _OV void vstore3(T##3 v, size_t i, A T *p) { p[i * 3] = v.x; p[i * 3 + 1] = v.y; p[i * 3 + 2] = v.z; }
#define _LOAD_CONSTANT(T, N) \
    _OV T##N vload##N(size_t i, __constant const T *p) { \
        typedef T##N unaligned __attribute__((aligned(sizeof(T)))); \
        return *(__constant const unaligned *)(p + i * N); }
#define _LOADS_IN(T, A) _LOAD(T, 2, A) _LOAD3(T, A) _LOAD(T, 4, A) _LOAD(T, 8, A) _LOAD(T, 16, A)
#define _LOADS(T) \
    _LOADS_IN(T, __global) _LOADS_IN(T, __local) _LOADS_IN(T, __private) \
    _LOAD_CONSTANT(T, 2) _LOAD_CONSTANT(T, 4) _LOAD_CONSTANT(T, 8) _LOAD_CONSTANT(T, 16)
_SCALARS(_LOADS)

#define _LOAD_HALF(N, A) \
    _OV float##N vload_half##N(size_t i, A const half *p) { return convert_float##N(vload##N(i, p)); } \
    _OV float##N vloada_half##N(size_t i, A const half *p) { return convert_float##N(((A const half##N *)p)[i]); }
#define _STORE_HALF(N, A, R) \
    _OV void vstore_half##N##R(float##N v, size_t i, A half *p) { vstore##N(convert_half##N(v), i, p); } \
    _OV void vstorea_half##N##R(float##N v, size_t i, A half *p) { ((A half##N *)p)[i] = convert_half##N(v); }
#define _HALF_N(N, A) _LOAD_HALF(N, A) _STORE_HALF(N, A, ) _STORE_HALF(N, A, _rte)
#define _HALF(A) \
    _OV float vload_half(size_t i, A const half *p) { return (float)p[i]; } \
    _OV void vstore_half(float v, size_t i, A half *p) { p[i] = (half)v; } \
    _OV void vstore_half_rte(float v, size_t i, A half *p) { p[i] = (half)v; } \
    _HALF_N(2, A) _HALF_N(3, A) _HALF_N(4, A) _HALF_N(8, A) _HALF_N(16, A)
_HALF(__global) _HALF(__local) _HALF(__private)

/* ---- Integers ---- */

#define _INTEGERS(F) F(char) F(uchar) F(short) F(ushort) F(int) F(uint) F(long) F(ulong)
#define _INT(T) \
    _OV T min(T a, T b) { return __builtin_elementwise_min(a, b); } \
    _OV T max(T a, T b) { return __builtin_elementwise_max(a, b); } \
    _OV T clamp(T x, T a, T b) { return __builtin_elementwise_min(__builtin_elementwise_max(x, a), b); } \
    _OV T select(T a, T b, T c) { return c ? b : a; } \
    _OV T add_sat(T a, T b) { return __builtin_elementwise_add_sat(a, b); } \
    _OV T sub_sat(T a, T b) { return __builtin_elementwise_sub_sat(a, b); } \
    _OV T popcount(T a) { return (T)__builtin_popcountl((ulong)a & (~0ul >> (64 - 8 * sizeof(T)))); }
#define _INT_N(T, N) \
    _OV T##N min(T##N a, T##N b) { return __builtin_elementwise_min(a, b); } \
    _OV T##N max(T##N a, T##N b) { return __builtin_elementwise_max(a, b); } \
    _OV T##N min(T##N a, T b) { return __builtin_elementwise_min(a, (T##N)(b)); } \
    _OV T##N max(T##N a, T b) { return __builtin_elementwise_max(a, (T##N)(b)); } \
    _OV T##N clamp(T##N x, T##N a, T##N b) { return min(max(x, a), b); } \
    _OV T##N clamp(T##N x, T a, T b) { return min(max(x, a), b); } \
    _OV T##N select(T##N a, T##N b, T##N c) { return c ? b : a; } \
    _OV T##N add_sat(T##N a, T##N b) { return __builtin_elementwise_add_sat(a, b); }
#define _INT_VECTORS(T) _INT(T) _INT_N(T, 2) _INT_N(T, 3) _INT_N(T, 4) _INT_N(T, 8) _INT_N(T, 16)
_INTEGERS(_INT_VECTORS)

#define _ABS(T, U) \
    _OV U abs(T x) { return (U)(x < 0 ? -x : x); } \
    _OV U abs_diff(T a, T b) { return a > b ? (U)a - (U)b : (U)b - (U)a; }
_ABS(char, uchar) _ABS(short, ushort) _ABS(int, uint) _ABS(long, ulong)
#define _ABS_U(T) _OV T abs(T x) { return x; }
_ABS_U(uchar) _ABS_U(ushort) _ABS_U(uint) _ABS_U(ulong)
#define _24_BITS(T, U) \
    _OV T mul24(T a, T b) { return ((a << 8) >> 8) * ((b << 8) >> 8); } \
    _OV U mul24(U a, U b) { return (a & 0xffffffu) * (b & 0xffffffu); } \
    _OV T mad24(T a, T b, T c) { return mul24(a, b) + c; } \
    _OV U mad24(U a, U b, U c) { return mul24(a, b) + c; }
_24_BITS(int, uint) _24_BITS(int2, uint2) _24_BITS(int3, uint3) _24_BITS(int4, uint4) _24_BITS(int8, uint8)
_24_BITS(int16, uint16)
_OV int mul_hi(int a, int b) { return (int)(((long)a * b) >> 32); }
_OV uint mul_hi(uint a, uint b) { return (uint)(((ulong)a * b) >> 32); }
_OV int mad_hi(int a, int b, int c) { return mul_hi(a, b) + c; }
_OV uint mad_hi(uint a, uint b, uint c) { return mul_hi(a, b) + c; }
_OV int clz(int x) { return x ? __builtin_clz(x) : 32; }
_OV uint clz(uint x) { return x ? __builtin_clz(x) : 32; }
_OV uint rotate(uint x, uint n) { return __builtin_rotateleft32(x, n); }
_OV int rotate(int x, int n) { return (int)__builtin_rotateleft32((uint)x, (uint)n); }

/* ---- Floats that the backend knows ---- */

#define _WIDTHS(F, ...) F(float, __VA_ARGS__) F(float2, __VA_ARGS__) F(float3, __VA_ARGS__) F(float4, __VA_ARGS__) \
    F(float8, __VA_ARGS__) F(float16, __VA_ARGS__) F(half, __VA_ARGS__) F(half2, __VA_ARGS__) F(half4, __VA_ARGS__) \
    F(half8, __VA_ARGS__) F(half16, __VA_ARGS__)
#define _ONE(T, name, builtin) _OV T name(T x) { return builtin(x); }
#define _TWO(T, name, builtin) _OV T name(T x, T y) { return builtin(x, y); }
_WIDTHS(_ONE, fabs, __builtin_elementwise_abs)
_WIDTHS(_ONE, floor, __builtin_elementwise_floor)
_WIDTHS(_ONE, ceil, __builtin_elementwise_ceil)
_WIDTHS(_ONE, trunc, __builtin_elementwise_trunc)
_WIDTHS(_ONE, rint, __builtin_elementwise_rint)
_WIDTHS(_ONE, round, __builtin_elementwise_round)
_WIDTHS(_ONE, sqrt, __builtin_elementwise_sqrt)
_WIDTHS(_ONE, exp, __builtin_elementwise_exp)
_WIDTHS(_ONE, exp2, __builtin_elementwise_exp2)
_WIDTHS(_ONE, log, __builtin_elementwise_log)
_WIDTHS(_ONE, log2, __builtin_elementwise_log2)
_WIDTHS(_ONE, log10, __builtin_elementwise_log10)
_WIDTHS(_ONE, native_exp, __builtin_elementwise_exp)
_WIDTHS(_ONE, native_log, __builtin_elementwise_log)
_WIDTHS(_ONE, native_sqrt, __builtin_elementwise_sqrt)
_WIDTHS(_ONE, native_sin, __builtin_elementwise_sin)
_WIDTHS(_ONE, native_cos, __builtin_elementwise_cos)
_WIDTHS(_TWO, fmin, __builtin_elementwise_min)
_WIDTHS(_TWO, fmax, __builtin_elementwise_max)
_WIDTHS(_TWO, min, __builtin_elementwise_min)
_WIDTHS(_TWO, max, __builtin_elementwise_max)
_WIDTHS(_TWO, copysign, __builtin_elementwise_copysign)

#define _FUSED(T, _) \
    _OV T fma(T a, T b, T c) { return __builtin_elementwise_fma(a, b, c); } \
    _OV T mad(T a, T b, T c) { return __builtin_elementwise_fma(a, b, c); } \
    _OV T clamp(T x, T a, T b) { return fmin(fmax(x, a), b); } \
    _OV T mix(T a, T b, T c) { return fma(b - a, c, a); } \
    _OV T rsqrt(T x) { return (T)(1.0f) / sqrt(x); } \
    _OV T recip(T x) { return (T)(1.0f) / x; } \
    _OV T native_recip(T x) { return (T)(1.0f) / x; } \
    _OV T native_rsqrt(T x) { return rsqrt(x); } \
    _OV T native_divide(T x, T y) { return x / y; } \
    _OV T fdim(T x, T y) { return fmax(x - y, (T)(0.0f)); } \
    _OV T expm1(T x); _OV T log1p(T x); _OV T tanh(T x); _OV T erf(T x); _OV T sin(T x); _OV T cos(T x); \
    _OV T tan(T x); _OV T sinh(T x); _OV T cosh(T x); _OV T asin(T x); _OV T acos(T x); _OV T atan(T x); \
    _OV T asinh(T x); _OV T acosh(T x); _OV T atanh(T x); _OV T erfc(T x); _OV T exp10(T x); _OV T cbrt(T x); \
    _OV T sign(T x); _OV T degrees(T x); _OV T pow(T x, T y); _OV T powr(T x, T y); _OV T fmod(T x, T y); \
    _OV T hypot(T x, T y); _OV T atan2(T x, T y); _OV T step(T edge, T x); _OV T remainder(T x, T y);
#undef _WIDTHS
#define _WIDTHS(F, ...) F(float, __VA_ARGS__) F(float2, __VA_ARGS__) F(float3, __VA_ARGS__) F(float4, __VA_ARGS__) \
    F(float8, __VA_ARGS__) F(float16, __VA_ARGS__) F(half, __VA_ARGS__) F(half2, __VA_ARGS__) F(half4, __VA_ARGS__) \
    F(half8, __VA_ARGS__)
_WIDTHS(_FUSED, )

#define _SCALAR_SIDE(T, S) \
    _OV T fmin(T x, S y) { return fmin(x, (T)(y)); } \
    _OV T fmax(T x, S y) { return fmax(x, (T)(y)); } \
    _OV T min(T x, S y) { return fmin(x, (T)(y)); } \
    _OV T max(T x, S y) { return fmax(x, (T)(y)); } \
    _OV T clamp(T x, S a, S b) { return fmin(fmax(x, (T)(a)), (T)(b)); }
_SCALAR_SIDE(float2, float) _SCALAR_SIDE(float3, float) _SCALAR_SIDE(float4, float) _SCALAR_SIDE(float8, float)
_SCALAR_SIDE(float16, float) _SCALAR_SIDE(half2, half) _SCALAR_SIDE(half4, half) _SCALAR_SIDE(half8, half)

/* ---- Floats that need a few instructions: about ---- */

_OV float sign(float x) { return x != x ? 0.0f : x > 0 ? 1.0f : x < 0 ? -1.0f : x; }
_OV float step(float edge, float x) { return x < edge ? 0.0f : 1.0f; }
_OV float degrees(float x) { return x * 57.2957795f; }
_OV float radians(float x) { return x * 0.0174532925f; }
_OV float exp10(float x) { return exp2(x * 3.32192809f); }
_OV float ldexp(float x, int n) { return __builtin_ldexpf(x, n); }
_OV float frexp(float x, __private int *n) { *n = __builtin_amdgcn_frexp_expf(x); return __builtin_amdgcn_frexp_mantf(x); }
_OV float expm1(float x) {
    float small = x * fma(x, fma(x, fma(x, fma(x, fma(x, 0.00138889f, 0.00833333f), 0.0416667f), 0.16666667f), 0.5f), 1.0f);
    return fabs(x) < 0.5f ? small : exp(x) - 1.0f;
}
_OV float log1p(float x) {
    float u = 1.0f + x, rest = x - (u - 1.0f);
    return u == 0.0f ? -INFINITY : u == INFINITY ? x : log(u) + rest / u;
}
_OV float tanh(float x) {
    float y = fabs(x), s = y * y;
    float small = fma(y * s, fma(s, fma(s, fma(s, -0.00570498f, 0.0206390f), -0.0537397f), 0.133314f) * s - 0.333332f, y);
    float large = 1.0f - 2.0f / (exp(2.0f * y) + 1.0f);
    return copysign(y < 0.625f ? small : large, x);
}
/* Abramowitz and Stegun 7.1.26 beyond 1, its Taylor series below: two polynomials and an exponential, as in ROCm's. */
_OV float erf(float x) {
    float y = fabs(x), s = y * y;
    float small = y * fma(s, fma(s, fma(s, fma(s, fma(s, fma(s, 0.00012055f, -0.00085484f), 0.0052240f), -0.0268661f),
        0.1128379f), -0.3761264f), 1.1283792f);
    float t = 1.0f / fma(0.3275911f, y, 1.0f);
    float p = t * fma(t, fma(t, fma(t, fma(t, 1.061405429f, -1.453152027f), 1.421413741f), -0.284496736f), 0.254829592f);
    return copysign(y < 1.0f ? small : 1.0f - p * exp(-s), x);
}
_OV float erfc(float x) { return 1.0f - erf(x); }
/* 2^(y log2|x|) with the product in two floats, which is what makes the driver's pow long. */
_OV float powr(float x, float y) {
    float l = log2(x), high = y * l, low = fma(y, l, -high);
    float e = rint(high);
    return ldexp(exp2((high - e) + low), (int)e);
}
_OV float pow(float x, float y) {
    float size = powr(fabs(x), y), whole = trunc(y);
    float odd = fabs(whole - 2.0f * trunc(whole * 0.5f));
    float signed_size = odd == 1.0f ? copysign(size, x) : size;
    float result = x < 0.0f && whole != y ? NAN : signed_size;
    return y == 0.0f || x == 1.0f ? 1.0f : result;
}
_OV float pown(float x, int y) { return pow(x, (float)y); }
_OV float rootn(float x, int y) { return pow(x, 1.0f / (float)y); }
_OV float cbrt(float x) { return copysign(powr(fabs(x), 0.33333334f), x); }
_OV float fmod(float x, float y) { return fma(-trunc(x / y), y, x); }
_OV float remainder(float x, float y) { return fma(-rint(x / y), y, x); }
_OV float hypot(float x, float y) { return sqrt(fma(x, x, y * y)); }
/* Cody and Waite's reduction in three steps; the driver adds Payne and Hanek's for |x| above 1e5 or so. */
_OV float _sine(float x, int turn) {
    float q = rint(x * M_2_PI_F);
    float r = fma(q, -1.5707963f, x);
    r = fma(q, 4.371139e-8f, r);
    r = fma(q, 1.7151245e-15f, r);
    float s = r * r;
    float sine = fma(r * s, fma(s, fma(s, -0.00019515f, 0.00833216f), -0.16666655f), r);
    float cosine = fma(s, fma(s, fma(s, fma(s, 2.44331e-5f, -0.00138873f), 0.04166665f), -0.5f), 1.0f);
    int quadrant = (int)q + turn;
    float chosen = quadrant & 1 ? cosine : sine;
    return quadrant & 2 ? -chosen : chosen;
}
_OV float sin(float x) { return _sine(x, 0); }
_OV float cos(float x) { return _sine(x, 1); }
_OV float tan(float x) { return sin(x) / cos(x); }
_OV float sincos(float x, __private float *c) { *c = cos(x); return sin(x); }
_OV float sinh(float x) { float e = exp(fabs(x)); return copysign(0.5f * (e - 1.0f / e), x); }
_OV float cosh(float x) { float e = exp(fabs(x)); return 0.5f * (e + 1.0f / e); }
_OV float atan(float x) {
    float y = fabs(x), z = y > 1.0f ? 1.0f / y : y, s = z * z;
    float p = z * fma(s, fma(s, fma(s, fma(s, fma(s, fma(s, fma(s, 0.00286623f, -0.0161657f), 0.0429096f), -0.0752896f),
        0.1065626f), -0.1420889f), 0.1999355f), -0.3333315f) * s + z;
    return copysign(y > 1.0f ? M_PI_2_F - p : p, x);
}
_OV float atan2(float y, float x) { float a = atan(y / x); return x < 0.0f ? a + copysign(M_PI_F, y) : a; }
_OV float asin(float x) { return atan2(x, sqrt((1.0f - x) * (1.0f + x))); }
_OV float acos(float x) { return M_PI_2_F - asin(x); }
_OV float asinh(float x) { float y = fabs(x); return copysign(log(y + sqrt(fma(y, y, 1.0f))), x); }
_OV float acosh(float x) { return log(x + sqrt((x - 1.0f) * (x + 1.0f))); }
_OV float atanh(float x) { return 0.5f * log((1.0f + x) / (1.0f - x)); }

#define _EACH(name) \
    _OV float2 name(float2 x) { return (float2)(name(x.x), name(x.y)); } \
    _OV float3 name(float3 x) { return (float3)(name(x.x), name(x.y), name(x.z)); } \
    _OV float4 name(float4 x) { return (float4)(name(x.lo), name(x.hi)); } \
    _OV float8 name(float8 x) { return (float8)(name(x.lo), name(x.hi)); } \
    _OV float16 name(float16 x) { return (float16)(name(x.lo), name(x.hi)); } \
    _OV half name(half x) { return (half)name((float)x); } \
    _OV half2 name(half2 x) { return convert_half2(name(convert_float2(x))); } \
    _OV half4 name(half4 x) { return convert_half4(name(convert_float4(x))); } \
    _OV half8 name(half8 x) { return convert_half8(name(convert_float8(x))); }
_EACH(expm1) _EACH(log1p) _EACH(tanh) _EACH(erf) _EACH(erfc) _EACH(sin) _EACH(cos) _EACH(tan) _EACH(sinh) _EACH(cosh)
_EACH(asin) _EACH(acos) _EACH(atan) _EACH(asinh) _EACH(acosh) _EACH(atanh) _EACH(exp10) _EACH(cbrt) _EACH(sign)
_EACH(degrees)
#define _EACH2(name) \
    _OV float2 name(float2 x, float2 y) { return (float2)(name(x.x, y.x), name(x.y, y.y)); } \
    _OV float3 name(float3 x, float3 y) { return (float3)(name(x.x, y.x), name(x.y, y.y), name(x.z, y.z)); } \
    _OV float4 name(float4 x, float4 y) { return (float4)(name(x.lo, y.lo), name(x.hi, y.hi)); } \
    _OV float8 name(float8 x, float8 y) { return (float8)(name(x.lo, y.lo), name(x.hi, y.hi)); } \
    _OV float16 name(float16 x, float16 y) { return (float16)(name(x.lo, y.lo), name(x.hi, y.hi)); } \
    _OV half name(half x, half y) { return (half)name((float)x, (float)y); }
_EACH2(pow) _EACH2(powr) _EACH2(fmod) _EACH2(remainder) _EACH2(hypot) _EACH2(atan2) _EACH2(step)

_OV float dot(float x, float y) { return x * y; }
_OV float dot(float2 a, float2 b) { return fma(a.x, b.x, a.y * b.y); }
_OV float dot(float3 a, float3 b) { return fma(a.x, b.x, fma(a.y, b.y, a.z * b.z)); }
_OV float dot(float4 a, float4 b) { return fma(a.x, b.x, fma(a.y, b.y, fma(a.z, b.z, a.w * b.w))); }
_OV float length(float4 a) { return sqrt(dot(a, a)); }

#define _RELATION(T, I) \
    _OV I isnan(T x) { return x != x; } \
    _OV I isinf(T x) { return fabs(x) == (T)(INFINITY); } \
    _OV I isfinite(T x) { return fabs(x) < (T)(INFINITY); } \
    _OV I isequal(T x, T y) { return x == y; } \
    _OV I isnotequal(T x, T y) { return x != y; } \
    _OV I isless(T x, T y) { return x < y; } \
    _OV I islessequal(T x, T y) { return x <= y; } \
    _OV I isgreater(T x, T y) { return x > y; } \
    _OV I isgreaterequal(T x, T y) { return x >= y; }
_RELATION(float, int) _RELATION(float2, int2) _RELATION(float3, int3) _RELATION(float4, int4) _RELATION(float8, int8)
_OV int signbit(float x) { return as_uint(x) >> 31; }
_OV float nextafter(float x, float y) {
    return x == y ? y : as_float(as_int(x) + ((x < y) == (x >= 0.0f) ? 1 : -1));
}
_OV float select(float a, float b, int c) { return c ? b : a; }
_OV float2 select(float2 a, float2 b, int2 c) { return c ? b : a; }
_OV float4 select(float4 a, float4 b, int4 c) { return c ? b : a; }
_OV float8 select(float8 a, float8 b, int8 c) { return c ? b : a; }
_OV int any(int x) { return x < 0; }
_OV int any(int2 x) { return (x.x | x.y) < 0; }
_OV int any(int4 x) { return any(x.lo | x.hi); }
_OV int all(int x) { return x < 0; }
_OV int all(int2 x) { return (x.x & x.y) < 0; }
_OV int all(int4 x) { return all(x.lo & x.hi); }
_OV float bitselect(float a, float b, float c) {
    return as_float((as_uint(a) & ~as_uint(c)) | (as_uint(b) & as_uint(c)));
}

/* ---- Atomics ---- */

#define _ATOMIC(name, builtin, T, A) \
    _OV T atomic_##name(volatile A T *p, T v) { \
        return builtin(p, v, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE); }
#define _ATOMICS(T, A) \
    _ATOMIC(add, __scoped_atomic_fetch_add, T, A) _ATOMIC(sub, __scoped_atomic_fetch_sub, T, A) \
    _ATOMIC(min, __scoped_atomic_fetch_min, T, A) _ATOMIC(max, __scoped_atomic_fetch_max, T, A) \
    _ATOMIC(and, __scoped_atomic_fetch_and, T, A) _ATOMIC(or, __scoped_atomic_fetch_or, T, A) \
    _ATOMIC(xor, __scoped_atomic_fetch_xor, T, A) _ATOMIC(xchg, __scoped_atomic_exchange_n, T, A) \
    _OV T atomic_inc(volatile A T *p) { return atomic_add(p, (T)1); } \
    _OV T atomic_dec(volatile A T *p) { return atomic_sub(p, (T)1); } \
    _OV T atomic_cmpxchg(volatile A T *p, T expected, T v) { \
        __scoped_atomic_compare_exchange_n(p, &expected, v, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED, \
            __MEMORY_SCOPE_DEVICE); return expected; }
_ATOMICS(int, __global) _ATOMICS(uint, __global) _ATOMICS(int, __local) _ATOMICS(uint, __local)
_OV float atomic_xchg(volatile __global float *p, float v) {
    return as_float(atomic_xchg((volatile __global uint *)p, as_uint(v)));
}

/* ---- Dot products of bytes (cl_khr_integer_dot_product): one instruction where the target has it ---- */

#if defined(__GFX11__) || defined(__GFX12__)
#define _SDOT(a, b, c) __builtin_amdgcn_sudot4(true, (a), true, (b), (c), false)
#define _UDOT(a, b, c) ((uint)__builtin_amdgcn_udot4((a), (b), (c), false))
#elif defined(__gfx906__) || defined(__gfx908__) || defined(__gfx90a__) || defined(__gfx942__) || defined(__gfx950__) || \
    defined(__gfx1011__) || defined(__gfx1012__) || defined(__gfx1030__) || defined(__gfx1031__) || \
    defined(__gfx1032__) || defined(__gfx1033__) || defined(__gfx1034__) || defined(__gfx1035__) || defined(__gfx1036__)
#define _SDOT(a, b, c) __builtin_amdgcn_sdot4((a), (b), (c), false)
#define _UDOT(a, b, c) ((uint)__builtin_amdgcn_udot4((a), (b), (c), false))
#else
_OV int _sdot(int a, int b, int c) {
    char4 x = as_char4(a), y = as_char4(b);
    return c + x.x * y.x + x.y * y.y + x.z * y.z + x.w * y.w;
}
_OV uint _udot(uint a, uint b, uint c) {
    uchar4 x = as_uchar4(a), y = as_uchar4(b);
    return c + x.x * y.x + x.y * y.y + x.z * y.z + x.w * y.w;
}
#define _SDOT(a, b, c) _sdot((a), (b), (c))
#define _UDOT(a, b, c) _udot((a), (b), (c))
#endif
_OV int dot_4x8packed_ss_int(uint a, uint b) { return _SDOT((int)a, (int)b, 0); }
_OV uint dot_4x8packed_uu_uint(uint a, uint b) { return _UDOT(a, b, 0u); }
_OV int dot_acc_sat_4x8packed_ss_int(uint a, uint b, int c) { return _SDOT((int)a, (int)b, c); }
_OV int dot(char4 a, char4 b) { return _SDOT(as_int(a), as_int(b), 0); }
_OV uint dot(uchar4 a, uchar4 b) { return _UDOT(as_uint(a), as_uint(b), 0u); }
_OV int dot_acc_sat(char4 a, char4 b, int c) { return _SDOT(as_int(a), as_int(b), c); }

/* ---- Sub-groups (cl_khr_subgroups): a wave, whose lanes are numbered along x ---- */

_OV uint get_sub_group_size(void) { return __builtin_amdgcn_wavefrontsize(); }
_OV uint get_sub_group_local_id(void) { return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0u)); }
_OV int sub_group_shuffle(int x, uint lane) { return __builtin_amdgcn_ds_bpermute((int)(lane << 2), x); }
_OV float sub_group_shuffle(float x, uint lane) { return as_float(sub_group_shuffle(as_int(x), lane)); }
_OV int sub_group_broadcast(int x, uint lane) { return sub_group_shuffle(x, lane); }
_OV float sub_group_broadcast(float x, uint lane) { return sub_group_shuffle(x, lane); }
_OV float sub_group_shuffle_xor(float x, uint mask) { return sub_group_shuffle(x, get_sub_group_local_id() ^ mask); }
#define _REDUCE(name, combine) \
    _OV float sub_group_reduce_##name(float x) { \
        for (uint m = get_sub_group_size() / 2; m; m >>= 1) { float y = sub_group_shuffle_xor(x, m); x = combine; } \
        return x; }
_REDUCE(add, x + y) _REDUCE(min, fmin(x, y)) _REDUCE(max, fmax(x, y))
_OV void sub_group_barrier(cl_mem_fence_flags f) { __builtin_amdgcn_wave_barrier(); }

#pragma OPENCL EXTENSION cl_khr_fp16 : disable
#undef _OV

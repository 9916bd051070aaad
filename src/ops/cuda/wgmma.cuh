// The Hopper matrix instruction (wgmma): D[64, N] += A[64, 16] B[16, N], fp32 sums, 16-bit operands; with 8-bit operands
// a step is 32 in K.
// B is in shared memory; A in registers (rs) or in shared memory (ss). A warpgroup issues it together. One macro line
// a shape, since an asm statement cannot have a computed number of operands.
#pragma once

#include <cstdint>

namespace hadal::cuda {

// ---- issue and wait --------------------------------------------------------------------------------------------
// Before the first instruction of a batch, and whenever A or D registers were written by ordinary instructions.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most `Pending` of the latest groups are still running.
template <int Pending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}

// ---- shared memory operands ------------------------------------------------------------------------------------
// Tiles in 128-byte swizzle: 16-byte chunk c of row r lies at r * 128 + ((c ^ (r & 7)) << 4), from a 1024-byte
// boundary.
//
// K-major (a row is one column of B, 64 values of K): 8 rows every 1,024 bytes. A step of 16 in K adds 32 bytes.
__device__ __forceinline__ uint64_t k_major_descriptor(uint32_t address) {
  return static_cast<uint64_t>((address & 0x3ffff) >> 4) | (uint64_t{1} << 16) | (uint64_t{1024 >> 4} << 32) |
         (uint64_t{1} << 62);
}
// MN-major (a row is one value of K, 64 columns of B): the next 64 columns lie `column_stride` bytes on, the next 8
// values of K lie 1,024 bytes on. A step of 16 in K adds 2,048 bytes.
__device__ __forceinline__ uint64_t mn_major_descriptor(uint32_t address, uint32_t column_stride) {
  return static_cast<uint64_t>((address & 0x3ffff) >> 4) | (static_cast<uint64_t>(column_stride >> 4) << 16) |
         (uint64_t{1024 >> 4} << 32) | (uint64_t{1} << 62);
}

// ---- shapes ----------------------------------------------------------------------------------------------------
// rs(D, A, B, accumulate): accumulate = 0 starts a new sum. Types: bf16 or f16. BTransposed = 1 for MN-major B.
// rs_e5m2: A in E5M2, B in E4M3, 32 values of K; B is K-major, and a step of 32 in K adds 32 bytes. Its sums keep about 14
// bits of the largest term: add them to fp32 sums of your own every 128 values of K.
// await(D): wgmma_wait<0> for sums that are read and started anew while the kernel goes on, so that the compiler knows that
// they change here. settle(X): X (N / 2 values) is computed before what follows, which the compiler may otherwise move products past.
template <int N>
struct Wgmma;

// clang-format off
#define HADAL_R8 "%0,%1,%2,%3"
#define HADAL_D8 "+f"(d[0]),"+f"(d[1]),"+f"(d[2]),"+f"(d[3])
#define HADAL_R16 HADAL_R8 ",%4,%5,%6,%7"
#define HADAL_D16 HADAL_D8,"+f"(d[4]),"+f"(d[5]),"+f"(d[6]),"+f"(d[7])
#define HADAL_R24 HADAL_R16 ",%8,%9,%10,%11"
#define HADAL_D24 HADAL_D16,"+f"(d[8]),"+f"(d[9]),"+f"(d[10]),"+f"(d[11])
#define HADAL_R32 HADAL_R24 ",%12,%13,%14,%15"
#define HADAL_D32 HADAL_D24,"+f"(d[12]),"+f"(d[13]),"+f"(d[14]),"+f"(d[15])
#define HADAL_R40 HADAL_R32 ",%16,%17,%18,%19"
#define HADAL_D40 HADAL_D32,"+f"(d[16]),"+f"(d[17]),"+f"(d[18]),"+f"(d[19])
#define HADAL_R48 HADAL_R40 ",%20,%21,%22,%23"
#define HADAL_D48 HADAL_D40,"+f"(d[20]),"+f"(d[21]),"+f"(d[22]),"+f"(d[23])
#define HADAL_R56 HADAL_R48 ",%24,%25,%26,%27"
#define HADAL_D56 HADAL_D48,"+f"(d[24]),"+f"(d[25]),"+f"(d[26]),"+f"(d[27])
#define HADAL_R64 HADAL_R56 ",%28,%29,%30,%31"
#define HADAL_D64 HADAL_D56,"+f"(d[28]),"+f"(d[29]),"+f"(d[30]),"+f"(d[31])
#define HADAL_R72 HADAL_R64 ",%32,%33,%34,%35"
#define HADAL_D72 HADAL_D64,"+f"(d[32]),"+f"(d[33]),"+f"(d[34]),"+f"(d[35])
#define HADAL_R80 HADAL_R72 ",%36,%37,%38,%39"
#define HADAL_D80 HADAL_D72,"+f"(d[36]),"+f"(d[37]),"+f"(d[38]),"+f"(d[39])
#define HADAL_R88 HADAL_R80 ",%40,%41,%42,%43"
#define HADAL_D88 HADAL_D80,"+f"(d[40]),"+f"(d[41]),"+f"(d[42]),"+f"(d[43])
#define HADAL_R96 HADAL_R88 ",%44,%45,%46,%47"
#define HADAL_D96 HADAL_D88,"+f"(d[44]),"+f"(d[45]),"+f"(d[46]),"+f"(d[47])
#define HADAL_R104 HADAL_R96 ",%48,%49,%50,%51"
#define HADAL_D104 HADAL_D96,"+f"(d[48]),"+f"(d[49]),"+f"(d[50]),"+f"(d[51])
#define HADAL_R112 HADAL_R104 ",%52,%53,%54,%55"
#define HADAL_D112 HADAL_D104,"+f"(d[52]),"+f"(d[53]),"+f"(d[54]),"+f"(d[55])
#define HADAL_R120 HADAL_R112 ",%56,%57,%58,%59"
#define HADAL_D120 HADAL_D112,"+f"(d[56]),"+f"(d[57]),"+f"(d[58]),"+f"(d[59])
#define HADAL_R128 HADAL_R120 ",%60,%61,%62,%63"
#define HADAL_D128 HADAL_D120,"+f"(d[60]),"+f"(d[61]),"+f"(d[62]),"+f"(d[63])
#define HADAL_R136 HADAL_R128 ",%64,%65,%66,%67"
#define HADAL_D136 HADAL_D128,"+f"(d[64]),"+f"(d[65]),"+f"(d[66]),"+f"(d[67])
#define HADAL_R144 HADAL_R136 ",%68,%69,%70,%71"
#define HADAL_D144 HADAL_D136,"+f"(d[68]),"+f"(d[69]),"+f"(d[70]),"+f"(d[71])
#define HADAL_R152 HADAL_R144 ",%72,%73,%74,%75"
#define HADAL_D152 HADAL_D144,"+f"(d[72]),"+f"(d[73]),"+f"(d[74]),"+f"(d[75])
#define HADAL_R160 HADAL_R152 ",%76,%77,%78,%79"
#define HADAL_D160 HADAL_D152,"+f"(d[76]),"+f"(d[77]),"+f"(d[78]),"+f"(d[79])
#define HADAL_R168 HADAL_R160 ",%80,%81,%82,%83"
#define HADAL_D168 HADAL_D160,"+f"(d[80]),"+f"(d[81]),"+f"(d[82]),"+f"(d[83])
#define HADAL_R176 HADAL_R168 ",%84,%85,%86,%87"
#define HADAL_D176 HADAL_D168,"+f"(d[84]),"+f"(d[85]),"+f"(d[86]),"+f"(d[87])
#define HADAL_R184 HADAL_R176 ",%88,%89,%90,%91"
#define HADAL_D184 HADAL_D176,"+f"(d[88]),"+f"(d[89]),"+f"(d[90]),"+f"(d[91])
#define HADAL_R192 HADAL_R184 ",%92,%93,%94,%95"
#define HADAL_D192 HADAL_D184,"+f"(d[92]),"+f"(d[93]),"+f"(d[94]),"+f"(d[95])
#define HADAL_R200 HADAL_R192 ",%96,%97,%98,%99"
#define HADAL_D200 HADAL_D192,"+f"(d[96]),"+f"(d[97]),"+f"(d[98]),"+f"(d[99])
#define HADAL_R208 HADAL_R200 ",%100,%101,%102,%103"
#define HADAL_D208 HADAL_D200,"+f"(d[100]),"+f"(d[101]),"+f"(d[102]),"+f"(d[103])
#define HADAL_R216 HADAL_R208 ",%104,%105,%106,%107"
#define HADAL_D216 HADAL_D208,"+f"(d[104]),"+f"(d[105]),"+f"(d[106]),"+f"(d[107])
#define HADAL_R224 HADAL_R216 ",%108,%109,%110,%111"
#define HADAL_D224 HADAL_D216,"+f"(d[108]),"+f"(d[109]),"+f"(d[110]),"+f"(d[111])
#define HADAL_R232 HADAL_R224 ",%112,%113,%114,%115"
#define HADAL_D232 HADAL_D224,"+f"(d[112]),"+f"(d[113]),"+f"(d[114]),"+f"(d[115])
#define HADAL_R240 HADAL_R232 ",%116,%117,%118,%119"
#define HADAL_D240 HADAL_D232,"+f"(d[116]),"+f"(d[117]),"+f"(d[118]),"+f"(d[119])
#define HADAL_R248 HADAL_R240 ",%120,%121,%122,%123"
#define HADAL_D248 HADAL_D240,"+f"(d[120]),"+f"(d[121]),"+f"(d[122]),"+f"(d[123])
#define HADAL_R256 HADAL_R248 ",%124,%125,%126,%127"
#define HADAL_D256 HADAL_D248,"+f"(d[124]),"+f"(d[125]),"+f"(d[126]),"+f"(d[127])

#define HADAL_WGMMA_RS(N, NAME, TYPE, I0, I1, I2, I3, I4, I5, I6)                                                  \
  template <int BTransposed = 0>                                                                                   \
  static __device__ __forceinline__ void NAME(float* d, const uint32_t* a, uint64_t b, int accumulate) {  \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" I5 ", 0;\n"                                                  \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE " {" HADAL_R##N "}, {%" I0 ",%" I1 ",%" I2 \
                 ",%" I3 "}, %" I4 ", p, 1, 1, %" I6 ";\n}\n"                                                      \
                 : HADAL_D##N                                                                                      \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(BTransposed));         \
  }
#define HADAL_WGMMA_SS(N, NAME, TYPE, I0, I1, I2, I3)                                                              \
  template <int BTransposed = 0>                                                                                   \
  static __device__ __forceinline__ void NAME(float* d, uint64_t a, uint64_t b, int accumulate) {         \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" I2 ", 0;\n"                                                  \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE " {" HADAL_R##N "}, %" I0 ", %" I1         \
                 ", p, 1, 1, 0, %" I3 ";\n}\n"                                                                     \
                 : HADAL_D##N                                                                                      \
                 : "l"(a), "l"(b), "r"(accumulate), "n"(BTransposed));                                             \
  }
#define HADAL_WGMMA_RS8(N, NAME, TYPES, I0, I1, I2, I3, I4, I5)                                                    \
  static __device__ __forceinline__ void NAME(float* d, const uint32_t* a, uint64_t b, int accumulate) {           \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" I5 ", 0;\n"                                                  \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k32.f32." TYPES " {" HADAL_R##N "}, {%" I0 ",%" I1 ",%" I2 \
                 ",%" I3 "}, %" I4 ", p, 1, 1;\n}\n"                                                               \
                 : HADAL_D##N                                                                                      \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));                           \
  }
#define HADAL_WGMMA_AWAIT(N, I0)                                                                                   \
  static __device__ __forceinline__ void await(float* d) {                                                         \
    asm volatile("wgmma.wait_group.sync.aligned %" I0 ";" : HADAL_D##N : "n"(0) : "memory");                       \
  }                                                                                                                \
  static __device__ __forceinline__ void settle(float* d) {                                                        \
    asm volatile("" : HADAL_D##N : : "memory");                                                                    \
  }
// 8-bit operands, both K-major in shared memory: a row is 128 values of K, a step of 32 in K adds 32 bytes.
#define HADAL_WGMMA_SS8(N, NAME, TYPES, I0, I1, I2)                                                                \
  static __device__ __forceinline__ void NAME(float* d, uint64_t a, uint64_t b, int accumulate) {                  \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" I2 ", 0;\n"                                                  \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k32.f32." TYPES " {" HADAL_R##N "}, %" I0 ", %" I1        \
                 ", p, 1, 1;\n}\n"                                                                                 \
                 : HADAL_D##N                                                                                      \
                 : "l"(a), "l"(b), "r"(accumulate));                                                               \
  }
#define HADAL_WGMMA(N, I0, I1, I2, I3, I4, I5, I6)                            \
  template <>                                                                 \
  struct Wgmma<N> {                                                           \
    HADAL_WGMMA_AWAIT(N, I0)                                                  \
    HADAL_WGMMA_RS8(N, rs_e5m2, "e5m2.e4m3", I0, I1, I2, I3, I4, I5)          \
    HADAL_WGMMA_RS(N, rs, "bf16.bf16", I0, I1, I2, I3, I4, I5, I6)            \
    HADAL_WGMMA_RS(N, rs_f16, "f16.f16", I0, I1, I2, I3, I4, I5, I6)          \
    HADAL_WGMMA_SS(N, ss, "bf16.bf16", I0, I1, I2, I3)                        \
    HADAL_WGMMA_SS(N, ss_f16, "f16.f16", I0, I1, I2, I3)                      \
    HADAL_WGMMA_SS8(N, ss_e4m3, "e4m3.e4m3", I0, I1, I2)                      \
  };
HADAL_WGMMA(8, "4", "5", "6", "7", "8", "9", "10")
HADAL_WGMMA(16, "8", "9", "10", "11", "12", "13", "14")
HADAL_WGMMA(24, "12", "13", "14", "15", "16", "17", "18")
HADAL_WGMMA(32, "16", "17", "18", "19", "20", "21", "22")
HADAL_WGMMA(40, "20", "21", "22", "23", "24", "25", "26")
HADAL_WGMMA(48, "24", "25", "26", "27", "28", "29", "30")
HADAL_WGMMA(56, "28", "29", "30", "31", "32", "33", "34")
HADAL_WGMMA(64, "32", "33", "34", "35", "36", "37", "38")
HADAL_WGMMA(72, "36", "37", "38", "39", "40", "41", "42")
HADAL_WGMMA(80, "40", "41", "42", "43", "44", "45", "46")
HADAL_WGMMA(88, "44", "45", "46", "47", "48", "49", "50")
HADAL_WGMMA(96, "48", "49", "50", "51", "52", "53", "54")
HADAL_WGMMA(104, "52", "53", "54", "55", "56", "57", "58")
HADAL_WGMMA(112, "56", "57", "58", "59", "60", "61", "62")
HADAL_WGMMA(120, "60", "61", "62", "63", "64", "65", "66")
HADAL_WGMMA(128, "64", "65", "66", "67", "68", "69", "70")
HADAL_WGMMA(136, "68", "69", "70", "71", "72", "73", "74")
HADAL_WGMMA(144, "72", "73", "74", "75", "76", "77", "78")
HADAL_WGMMA(152, "76", "77", "78", "79", "80", "81", "82")
HADAL_WGMMA(160, "80", "81", "82", "83", "84", "85", "86")
HADAL_WGMMA(168, "84", "85", "86", "87", "88", "89", "90")
HADAL_WGMMA(176, "88", "89", "90", "91", "92", "93", "94")
HADAL_WGMMA(184, "92", "93", "94", "95", "96", "97", "98")
HADAL_WGMMA(192, "96", "97", "98", "99", "100", "101", "102")
HADAL_WGMMA(200, "100", "101", "102", "103", "104", "105", "106")
HADAL_WGMMA(208, "104", "105", "106", "107", "108", "109", "110")
HADAL_WGMMA(216, "108", "109", "110", "111", "112", "113", "114")
HADAL_WGMMA(224, "112", "113", "114", "115", "116", "117", "118")
HADAL_WGMMA(232, "116", "117", "118", "119", "120", "121", "122")
HADAL_WGMMA(240, "120", "121", "122", "123", "124", "125", "126")
HADAL_WGMMA(248, "124", "125", "126", "127", "128", "129", "130")
HADAL_WGMMA(256, "128", "129", "130", "131", "132", "133", "134")

// 8-bit integers: D[64, 128] += A[64, 32] B[32, 128] in int32. A in registers, B K-major in shared memory; a step of 32 in K
// adds 32 bytes, as 16 values of 16 bits do.
__device__ __forceinline__ void wgmma_int8_n128(int (&d)[64], const uint32_t* a, uint64_t b, int accumulate) {
#define HADAL_I8(I) "+r"(d[I]),"+r"(d[I+1]),"+r"(d[I+2]),"+r"(d[I+3]),"+r"(d[I+4]),"+r"(d[I+5]),"+r"(d[I+6]),"+r"(d[I+7])
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n128k32.s32.s8.s8 {" HADAL_R128 "}, {%64,%65,%66,%67}, %68, p;\n}\n"
               : HADAL_I8(0),HADAL_I8(8),HADAL_I8(16),HADAL_I8(24),HADAL_I8(32),HADAL_I8(40),HADAL_I8(48),HADAL_I8(56)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));
#undef HADAL_I8
}
// clang-format on

}  // namespace hadal::cuda

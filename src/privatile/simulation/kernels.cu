// The Monte Carlo kernels for a GPU: one thread per replication, all cells of an experiment in one launch.
//
// The arithmetic is that of kernels.py, operation by operation and in the same order: the same generator with the same
// seeds, the same tables, the same fixed-point places, the same sums. Compiled without contraction of a*b+c (for CUDA
// -fmad=false, for C++ -ffp-contract=off) a replication gives the same bits here and there. Whatever does not depend on
// the replication is worked out beforehand (cuda.py) and arrives in the four structs below.
//
// One source, two builds: CUDA (CuPy's run-time compiler, or nvcc) and plain C++, where `simulate` is a loop; the tests
// build the latter and hold it against the CPU kernels.

typedef unsigned int u32;
typedef long long i64;

#ifdef __CUDACC__
#define INLINE __device__ __forceinline__
#define ALIGNED __align__(16)  // whole 16-byte loads
#ifndef UNROLL
#define UNROLL 5
#endif
constexpr int AHEAD = UNROLL;  // clients in flight
#define UNROLLED _Pragma("unroll AHEAD")
#else
#include <cmath>
#include <cstring>
#define INLINE static inline
#define ALIGNED
#define UNROLLED
#define __restrict__
using std::llrint;
#endif

enum Kind : i64 { COHORT = 0, LOCAL = 1, DIVIDED = 2, LOCAL_FIXED = 3 };

struct ALIGNED Client {
    double low, inverse, unit;  // its table's first knot, cells per unit of q, and the latter in fixed point
    double rise, fall;          // a_k and b_k: what a one and a zero move, in steps (divided: without 1/r_k)
    double share, move;         // p_k and p_k/r_k
    i64 table;                  // where its row of survival probabilities begins
    float base, slope;          // threshold of a report = base + slope·S
    float noise;                // DP-SGD: p_k times the Laplace scale
    u32 whole;                  // p_k/r_k in units of Job.unit
    u32 lie, tell;              // thresholds of a report when the record is known
    u32 run;                    // so many clients from here on are alike, this one included
    u32 same_group;             // the same distribution as the client before it: S(q) is known
};

struct ALIGNED Round {
    double step, each;       // γ and γ/E
    double inverse, square;  // 1/m and w·m² with m counted from the first averaged round; 0 before it
    i64 length, unused;
};

struct Job {  // LANES replications of one cell
    i64 kind, clients, rounds, cells, shift;
    i64 first_client, first_round, first_length;  // first_length < 0: every client has Round.length
    i64 noisy, groups;                            // groups: how many distributions the clients have
    i64 data, records;                            // data < 0: records are drawn; else client k's begin at data + k·records
    i64 lanes, first_lane;                        // of `words`, `start` and `result`
    double drift, unit, centre, total, moment, averaged, low, high;
};

struct Source {  // xoshiro128++
    u32 s0, s1, s2, s3;
};

INLINE u32 rotate(u32 x, int k) { return (x << k) | (x >> (32 - k)); }

INLINE u32 draw(Source& s) {
    u32 value = rotate(s.s0 + s.s3, 7) + s.s0;
    u32 t = s.s1 << 9;
    s.s2 ^= s.s0;
    s.s3 ^= s.s1;
    s.s1 ^= s.s2;
    s.s0 ^= s.s3;
    s.s2 ^= t;
    s.s3 = rotate(s.s3, 11);
    return value;
}

INLINE u32 bits_of(float x) {
#ifdef __CUDACC__
    return __float_as_uint(x);
#else
    u32 bits;
    std::memcpy(&bits, &x, 4);
    return bits;
#endif
}

INLINE float float_of(u32 bits) {
#ifdef __CUDACC__
    return __uint_as_float(bits);
#else
    float x;
    std::memcpy(&x, &bits, 4);
    return x;
#endif
}

INLINE u32 ones_in(u32 bits) {
#ifdef __CUDACC__
    return (u32)__popc(bits);
#else
    return (u32)__builtin_popcount(bits);
#endif
}

// q on the table's grid in fixed point, plus half a step of the dither that will be added; through a signed word, as
// the CPU's vectors convert it.
INLINE u32 place_of(double q, const Client& c, double half) {
    return (u32)(int)((q - c.low) * c.unit + half - 2147483648.0) ^ 0x80000000u;
}

INLINE float survival(double q, const Client& c, const float* __restrict__ tables, double top) {
    double at = (q - c.low) * c.inverse;
    at = at < 0.0 ? 0.0 : at;
    at = at > top ? top : at;
    int knot = (int)at;
    float part = (float)(at - knot);
    float near = tables[c.table + knot], far = tables[c.table + knot + 1];
    return near + part * (far - near);
}

INLINE u32 threshold_of(float above, const Client& c) { return (u32)(c.base + c.slope * above); }

// a/b rounded correctly, for b in [1, 4) and a of no extreme size: the quotient's usual steps without the test for
// special cases, whose branch would keep the compiler from overlapping two variates (`divisions` tries every argument).
INLINE float quotient(float a, float b) {
#ifdef __CUDACC__
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(b));
    y = __fmaf_rn(__fmaf_rn(-b, y, 1.0f), y, y);
    float q = __fmul_rn(a, y);
    return __fmaf_rn(__fmaf_rn(-b, q, a), y, q);
#else
    return a / b;
#endif
}

// A standard Laplace variate from 32 bits: sign from the lowest, −log of the uniform from the others.
INLINE float laplace(u32 bits) {
    u32 uniform = bits_of((float)(int)((bits >> 1) | 1u));
    float exponent = (float)((int)(uniform >> 23) - (127 + 31));
    float m = float_of((uniform & 0x7FFFFFu) | 0x3F800000u);
    float s = quotient(m - 1.4142135f, m + 1.4142135f);
    float z = s * s;
    float inner = (float)(1.0 / 3.0) + z * (0.2f + z * ((float)(1.0 / 7.0) + z * (float)(1.0 / 9.0)));
    float series = 2.0f * s * (1.0f + z * inner);
    float size = -(exponent * 0.6931472f + 0.3465736f + series);
    return (bits & 1u) ? size : -size;
}

// Binomial(length, threshold/2³²) by comparing `length` uniforms with the threshold bit by bit (kernels.py says how).
INLINE u32 binomial(Source& s, u32 threshold, i64 length) {
    u32 count = 0, undecided = (u32)length;
    for (int bit = 31; bit >= 0 && undecided > 0; bit--) {
        u32 ones = 0;
        for (u32 left = undecided; left > 0; left = left > 32 ? left - 32 : 0)
            ones += ones_in(draw(s) & (left >= 32 ? 0xFFFFFFFFu : (1u << left) - 1u));
        u32 zeros = undecided - ones;
        bool one_in_p = (threshold >> bit) & 1u;
        count += one_in_p ? zeros : 0u;
        undecided = one_in_p ? ones : zeros;
    }
    return count;
}

// What the compiler must take as it is: it would otherwise put a table's address together anew at every look-up, and
// turn a product, which has a unit of its own to run on, into one more shift.
INLINE const float* table_of(const float* __restrict__ tables, i64 at) {
    const float* table = tables + at;
#ifdef __CUDACC__
    asm("" : "+l"(table));
#endif
    return table;
}

INLINE u32 dither_of(u32 shift) {
    u32 step = 1u << (shift - 10u);
#ifdef __CUDACC__
    asm("" : "+r"(step));
#endif
    return step;
}

INLINE float read(const float* at) {
#ifdef __CUDACC__
    return __ldg(at);
#else
    return *at;
#endif
}

struct Sums {  // the running mean and the two sums of Algorithm 2 about the centre
    double mean, squares, lines;
};

INLINE void average(Sums& a, double value, double inverse, double square, double centre) {
    double running = a.mean + (value - a.mean) * inverse;
    a.mean = running;
    double off = running - centre;
    a.squares += square * off * off;
    a.lines += square * off;
}

// V = (Va − 2·Vb·Q + Vp·Q²)/(T²·Vs), all about the centre.
INLINE double normalizer(const Sums& a, const Job& job) {
    double off = a.mean - job.centre;
    double value = (a.squares - 2.0 * a.lines * off + job.moment * off * off) / (job.total * job.averaged * job.averaged);
    return value > 0.0 ? value : 0.0;
}

struct Found {
    double estimate, normalizer;
    bool inside;
};

struct Turn {  // what the clients of a round have said so far
    double move;
    float noise;
    u32 total;
};

// A round of one record per client, drawn from its law. No client waits for another, only the generator for itself: with
// a few of them in flight at once their look-ups and arithmetic overlap.
template <int KIND, bool NOISY>
INLINE void ones(const Job& job, const Client* __restrict__ clients, const float* __restrict__ tables, double each,
                 double q, double top, u32 shift, u32 dither, double half, Source& s, Turn& turn) {
    const int number = (int)job.clients;
    if (KIND == LOCAL) {
        UNROLLED for (int k = 0; k < number; k++) {
            const Client& c = clients[k];
            u32 bits = draw(s);
            float near = read(tables + c.table + ((place_of(q, c, half) + (bits & 1023u) * dither) >> shift));
            bool below = (float)(int)(bits >> 1) < c.base + c.slope * near;
            double rise = c.rise * each, fall = c.fall * each;
            double gain = c.share * (rise + fall), loss = c.share * fall;
            turn.move += below ? gain - loss : -loss;
        }
    } else if (job.groups > 1) {
        UNROLLED for (int k = 0; k < number; k++) {
            const Client& c = clients[k];
            u32 threshold = threshold_of(survival(q, c, tables, top), c);
            turn.total += draw(s) < threshold ? c.whole : 0u;
            if (NOISY) turn.noise += c.noise * laplace(draw(s));
        }
    } else {
        const float above = survival(q, clients[0], tables, top);
        if ((int)clients[0].run == number) {
            const u32 threshold = threshold_of(above, clients[0]), whole = clients[0].whole;
            const float scale = clients[0].noise;
            UNROLLED for (int k = 0; k < number; k++) {
                turn.total += draw(s) < threshold ? whole : 0u;
                if (NOISY) turn.noise += scale * laplace(draw(s));
            }
        } else {
            UNROLLED for (int k = 0; k < number; k++) {
                const Client& c = clients[k];
                turn.total += draw(s) < threshold_of(above, c) ? c.whole : 0u;
                if (NOISY) turn.noise += c.noise * laplace(draw(s));
            }
        }
    }
}

// A round of any lengths.
template <int KIND, bool NOISY, bool FIXED>
INLINE void many(const Job& job, const Client* __restrict__ clients, const int* __restrict__ lengths,
                 const float* __restrict__ tables, const double* __restrict__ data, const Round& round, int m, double q,
                 double top, u32 shift, u32 dither, double half, Source& s, Turn& turn) {
    const int number = (int)job.clients, last = (int)job.rounds;
    float above = 0.0f;
    for (int k = 0; k < number;) {
        const Client& c = clients[k];
        const int end = k + (int)c.run;
        int length = (int)round.length;
        double each = round.each;
        if (job.first_length >= 0) {
            length = lengths[(i64)k * last + m];
            each = round.step / length;
        }
        if (KIND == COHORT) {
            if (!FIXED && !c.same_group) above = survival(q, c, tables, top);
            u32 threshold = FIXED ? 0u : threshold_of(above, c);
            for (; k < end; k++) {
                u32 count = 0;
                if (FIXED) {
                    for (int j = 0; j < length; j++) {
                        threshold = threshold_of(data[k * job.records + j] > q ? 1.0f : 0.0f, c);
                        count += draw(s) < threshold ? 1u : 0u;
                    }
                } else if (length < 12) {
                    for (int j = 0; j < length; j++) count += draw(s) < threshold ? 1u : 0u;
                } else {
                    count = binomial(s, threshold, length);
                }
                if (length == 1)
                    turn.total += count * c.whole;
                else
                    turn.move += c.move / length * count;
                if (NOISY) turn.noise += c.noise * laplace(draw(s));
            }
        } else if (KIND == LOCAL) {
            const double rise = c.rise * each, fall = c.fall * each;
            const double gain = c.share * (rise + fall), loss = c.share * fall * length;
            const u32 up = (u32)llrint(rise * c.unit), down = (u32)-llrint(fall * c.unit);
            const u32 begin = place_of(q, c, half);
            const float* table = table_of(tables, c.table);
            const float base = c.base, slope = c.slope;
            for (; k < end; k++) {
                u32 place = begin, count = 0;
                for (int j = 0; j < length; j++) {
                    u32 bits = draw(s);
                    float near = read(table + ((place + (bits & 1023u) * dither) >> shift));
                    bool below = (float)(int)(bits >> 1) < base + slope * near;
                    count += below ? 1u : 0u;
                    place += below ? up : down;
                }
                turn.move += gain * count - loss;
            }
        } else {
            const double rise = c.rise * each, fall = -c.fall * each;
            for (; k < end; k++) {
                double own = q;
                for (int j = 0; j < length; j++) {
                    bool below = draw(s) < (data[k * job.records + j] > own ? c.tell : c.lie);
                    own += below ? rise : fall;
                }
                turn.move += c.share * (own - q);
            }
        }
    }
}

// Rounds that end in a synchronised q: cohort mode, the paper's C1, DP-SGD; Algorithm 1, also on fixed records.
template <int KIND, bool NOISY, bool FIXED>
INLINE Found synchronised(const Job& job, const Client* __restrict__ clients, const Round* __restrict__ rounds,
                          const int* __restrict__ lengths, const float* __restrict__ tables,
                          const double* __restrict__ data, Source s, double q) {
    Sums sums = {0.0, 0.0, 0.0};
    bool inside = true;
    const int last = (int)job.rounds;
    const double top = (double)job.cells - 1e-6;
    const u32 shift = (u32)job.shift, dither = dither_of(shift);
    const double half = (double)(1u << (shift - 11u));
    Round next = rounds[0];
    for (int m = 0; m < last; m++) {
        const Round round = next;
        next = rounds[m + 1 < last ? m + 1 : m];  // on its way while this round is worked on
        Turn turn = {0.0, 0.0f, 0};
        if (!FIXED && round.length == 1 && job.first_length < 0)
            ones<KIND, NOISY>(job, clients, tables, round.each, q, top, shift, dither, half, s, turn);
        else
            many<KIND, NOISY, FIXED>(job, clients, lengths, tables, data, round, m, q, top, shift, dither, half, s, turn);
        if (FIXED) data += round.length;  // every client's next record; their lengths are equal here
        if (KIND == COHORT) {
            if (NOISY) turn.move += turn.noise;
            turn.move += job.unit * turn.total;
            turn.move = round.step * (turn.move - job.drift);
        }
        q += turn.move;
        inside &= (q >= job.low) & (q <= job.high);
        if (round.inverse > 0.0) average(sums, q, round.inverse, round.square, job.centre);
    }
    return {sums.mean, normalizer(sums, job), inside};
}

// Divide and conquer: every client runs alone, its update not divided by r_k; then Q and V are averaged.
template <bool FIXED>
INLINE Found divided(const Job& job, const Client* __restrict__ clients, const Round* __restrict__ rounds,
                     const float* __restrict__ tables, const double* __restrict__ data, Source s, double start) {
    Found found = {0.0, 0.0, true};
    const int number = (int)job.clients, last = (int)job.rounds;
    const u32 shift = (u32)job.shift, dither = dither_of(shift);
    const double half = (double)(1u << (shift - 11u));
    for (int k = 0; k < number; k++) {
        const Client c = clients[k];
        const float* table = table_of(tables, c.table);
        Sums sums = {0.0, 0.0, 0.0};
        double q = start;
        Round next = rounds[0];
        for (int m = 0; m < last; m++) {
            const Round round = next;
            next = rounds[m + 1 < last ? m + 1 : m];
            u32 bits = draw(s);
            float near;
            if (FIXED)
                near = data[k * job.records + m] > q ? 1.0f : 0.0f;
            else
                near = read(table + ((place_of(q, c, half) + (bits & 1023u) * dither) >> shift));
            const double up = c.rise * round.step, down = -c.fall * round.step;
            bool below = (float)(int)(bits >> 1) < c.base + c.slope * near;
            q += below ? up : down;
            found.inside &= (q >= job.low) & (q <= job.high);
            average(sums, q, round.inverse, round.square, job.centre);
        }
        found.estimate += sums.mean / number;
        found.normalizer += normalizer(sums, job) / number;
    }
    return found;
}

INLINE void replicate(const Job* __restrict__ jobs, const Client* __restrict__ all_clients,
                      const Round* __restrict__ all_rounds, const int* __restrict__ all_lengths,
                      const float* __restrict__ tables, const double* __restrict__ all_data,
                      const u32* __restrict__ words, const double* __restrict__ start, double* __restrict__ result,
                      i64 index, int lane) {
    const Job& job = jobs[index];
    const i64 at = job.first_lane + lane, lanes = job.lanes;
    const Client* __restrict__ clients = all_clients + job.first_client;
    const Round* __restrict__ rounds = all_rounds + job.first_round;
    const int* __restrict__ lengths = all_lengths + (job.first_length < 0 ? 0 : job.first_length);
    const bool fixed = job.data >= 0;
    const double* __restrict__ data = all_data + (fixed ? job.data : 0);
    Source s = {words[at], words[lanes + at], words[2 * lanes + at], words[3 * lanes + at]};
    const double q = start[at];
    Found found = {0.0, 0.0, false};
    if (job.kind == LOCAL)
        found = synchronised<LOCAL, false, false>(job, clients, rounds, lengths, tables, data, s, q);
    else if (job.kind == LOCAL_FIXED)
        found = synchronised<LOCAL_FIXED, false, true>(job, clients, rounds, lengths, tables, data, s, q);
    else if (job.kind == DIVIDED && fixed)
        found = divided<true>(job, clients, rounds, tables, data, s, q);
    else if (job.kind == DIVIDED)
        found = divided<false>(job, clients, rounds, tables, data, s, q);
    else if (job.noisy && fixed)
        found = synchronised<COHORT, true, true>(job, clients, rounds, lengths, tables, data, s, q);
    else if (job.noisy)
        found = synchronised<COHORT, true, false>(job, clients, rounds, lengths, tables, data, s, q);
    else if (fixed)
        found = synchronised<COHORT, false, true>(job, clients, rounds, lengths, tables, data, s, q);
    else
        found = synchronised<COHORT, false, false>(job, clients, rounds, lengths, tables, data, s, q);
    result[at] = found.estimate;
    result[lanes + at] = found.normalizer;
    result[2 * lanes + at] = found.inside ? 1.0 : 0.0;
}

#define POOLS                                                                                                     \
    const Job *__restrict__ jobs, const Client *__restrict__ clients, const Round *__restrict__ rounds,           \
        const int *__restrict__ lengths, const float *__restrict__ tables, const double *__restrict__ data,       \
        const u32 *__restrict__ words, const double *__restrict__ start, double *__restrict__ result

#ifdef __CUDACC__
#ifndef THREADS
#define THREADS 64
#endif
#ifndef BLOCKS
#define BLOCKS 10
#endif
// Blocks take replications in order, the longest cells first: none is left alone with one at the end. BLOCKS of them
// fit on a multiprocessor at once, which leaves enough registers for several clients in flight; more threads would only
// slow the longest cells.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) simulate(POOLS, int lanes_per_job) {
    const int parts = lanes_per_job / THREADS;
    const i64 index = blockIdx.x / parts;
    replicate(jobs, clients, rounds, lengths, tables, data, words, start, result, index,
              (int)(blockIdx.x % parts) * THREADS + (int)threadIdx.x);
}
// How many of the Laplace variates' quotients differ from the division of the language: none.
extern "C" __global__ void divisions(int* wrong) {
    const u32 mantissa = blockIdx.x * blockDim.x + threadIdx.x;
    const float m = float_of(0x3F800000u | mantissa);
    if (quotient(m - 1.4142135f, m + 1.4142135f) != (m - 1.4142135f) / (m + 1.4142135f)) atomicAdd(wrong, 1);
}
#else
extern "C" u32 place_for_test(double q, const Client* client, double half) { return place_of(q, *client, half); }

extern "C" void simulate(POOLS, int lanes_per_job, i64 number) {
    for (i64 index = 0; index < number; index++)
        for (int lane = 0; lane < lanes_per_job; lane++)
            replicate(jobs, clients, rounds, lengths, tables, data, words, start, result, index, lane);
}
#endif

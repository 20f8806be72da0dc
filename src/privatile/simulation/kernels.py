"""The Monte Carlo kernels: one source for the CPU and for a GPU, LANES replications side by side.

All compiled code lives in this one file: the cache of compiled functions notices edits of this file alone. `cuda.py`
loads the file a second time, with `TARGET` set to "gpu", to compile the same functions for a GPU.

**Lanes.** On the CPU the innermost loop runs over 128 replications, so it becomes vector instructions; everything a
lane needs sits in arrays (w of 32-bit words, d of doubles, f of floats) at constant distances, which lets the compiler
prove that lanes never touch each other. On a GPU a thread has one lane, and the arrays become registers. A lane's
numbers depend on its own generator only: how replications are cut into blocks changes nothing.

**Cells** arrive as the records of packing.py: a job is LANES replications of a cell, with its clients and rounds.

**Generator.** xoshiro128++ (Blackman and Vigna), 128 bits of state per lane, seeded outside.

**Reports in law.** Given q, a report is 1 with probability (1−r)/2 + r·S(q), S = 1 − F. Drawing that Bernoulli is the
same in law as drawing x and the coin. S comes from a table of float32 on a uniform grid. Where one value serves many
draws it is interpolated; where every draw has its own q the low ten bits of the draw pick one of the two neighbouring
knots with the right odds instead, whose mean *is* the interpolation, to half a step of 2⁻¹⁰ of a cell. The tables are
fine enough that the error of a probability stays below 1e-6. `drawn` needs no table: it draws every record.

A product and a sum are never contracted into one operation, so that both targets give the same bits.
"""
# Numba compiles this file from its own types; a type checker sees neither them nor the intrinsics.
# mypy: ignore-errors

import math

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

TARGET = globals().get("TARGET", "cpu")
if TARGET == "gpu":
    from numba import cuda

    LANES, inline = 1, cuda.jit(device=True, forceinline=True, lto=False)
else:
    # Enough to fill vector registers several times, few enough for the first-level cache.
    LANES, inline = globals().get("LANES", 128), njit(forceinline=True)

JOB_LANES = 128
"""Replications per job."""

U32, I32, F32, U64 = np.uint32, np.int32, np.float32, np.uint64

COHORT, LOCAL, DIVIDED = range(3)
"""Kinds of jobs."""

# Places in a lane's words, doubles and floats, in units of LANES.
DRAW, INDEX, COUNT, THRESHOLD, PLACE, TOTAL, WORDS = 4, 5, 6, 7, 8, 9, 10
Q, MEAN, SQUARES, LINES, MOVE, OWN, INSIDE, DOUBLES = range(8)
PART, NEAR, FAR, ABOVE, NOISE, FLOATS = range(6)

NORMAL, UNIFORM, CAUCHY, DOUBLE_EXPONENTIAL, LOG_NORMAL, STUDENT_T, EMPIRICAL = range(7)
"""What `drawn` can draw, in the order of `samplers.KINDS`."""


@intrinsic
def _bits_of(typingctx, value):
    """The 32 bits of a float32."""

    def build(context, builder, signature, args):
        return builder.bitcast(args[0], ir.IntType(32))

    return types.uint32(types.float32), build


@intrinsic
def _float_of(typingctx, bits):
    """The float32 with these 32 bits."""

    def build(context, builder, signature, args):
        return builder.bitcast(args[0], ir.FloatType())

    return types.float32(types.uint32), build


@intrinsic
def _ones_in(typingctx, bits):
    """Number of set bits."""

    def build(context, builder, signature, args):
        return builder.ctpop(args[0])

    return types.uint32(types.uint32), build


@inline
def _rotate(x, k):
    return U32(U32(x << U32(k)) | U32(x >> U32(32 - k)))


@inline
def _draw(w, i):
    """The next 32 bits of lane i (xoshiro128++)."""
    s0, s1, s2, s3 = w[i], w[LANES + i], w[2 * LANES + i], w[3 * LANES + i]
    value = U32(_rotate(U32(s0 + s3), 7) + s0)
    t = U32(s1 << U32(9))
    s2 = U32(s2 ^ s0)
    s3 = U32(s3 ^ s1)
    s1 = U32(s1 ^ s2)
    s0 = U32(s0 ^ s3)
    s2 = U32(s2 ^ t)
    s3 = _rotate(s3, 11)
    w[i], w[LANES + i], w[2 * LANES + i], w[3 * LANES + i] = s0, s1, s2, s3
    return value


@inline
def _draw_if(w, i, wanted):
    """The next 32 bits of lane i; where they are not wanted the generator stays where it is."""
    s0, s1, s2, s3 = w[i], w[LANES + i], w[2 * LANES + i], w[3 * LANES + i]
    value = _draw(w, i)
    w[i] = w[i] if wanted else s0
    w[LANES + i] = w[LANES + i] if wanted else s1
    w[2 * LANES + i] = w[2 * LANES + i] if wanted else s2
    w[3 * LANES + i] = w[3 * LANES + i] if wanted else s3
    return value


@inline
def _place_of(q, low, unit, half):
    """q on the table's grid as a 32-bit fixed-point number, plus half a step of the dither that will be added."""
    # Through a signed word, which vectors can convert to, and back by flipping the top bit.
    return U32(U32(I32((q - low) * unit + half - 2147483648.0)) ^ U32(0x80000000))


@inline
def _survivals(w, d, f, client, tables, top):
    """ABOVE ← S(q), interpolated; outside the grid its end value. Gathers stand alone: the rest is vectors."""
    low, inverse, table = client.low, client.inverse, client.table
    for i in range(U64(LANES)):
        at = min(max((d[Q * LANES + i] - low) * inverse, 0.0), top)
        knot = I32(at)
        w[INDEX * LANES + i] = U32(knot)
        f[PART * LANES + i] = F32(at - knot)
    for i in range(U64(LANES)):
        knot = U64(U64(table) + U64(w[INDEX * LANES + i]))
        f[NEAR * LANES + i] = tables[knot]
        f[FAR * LANES + i] = tables[knot + U64(1)]
    for i in range(U64(LANES)):
        near = f[NEAR * LANES + i]
        f[ABOVE * LANES + i] = near + f[PART * LANES + i] * (f[FAR * LANES + i] - near)


@inline
def _thresholds(w, f, base, slope):
    """THRESHOLD ← base + slope·S: a report is 1 when the upper 31 bits of its draw are below."""
    for i in range(U64(LANES)):
        w[THRESHOLD * LANES + i] = U32(I32(base + slope * f[ABOVE * LANES + i]))


@inline
def _known_record(w, d, f, x, base, slope):
    """THRESHOLD for a known record x: S is 1 above q, else 0."""
    for i in range(U64(LANES)):
        f[ABOVE * LANES + i] = F32(1.0) if x > d[Q * LANES + i] else F32(0.0)
    _thresholds(w, f, base, slope)


@inline
def _add_reports(w, target, amount):
    """One report of every lane against its threshold; a yes adds `amount` to the target."""
    for i in range(U64(LANES)):
        # Signed comparisons are one instruction.
        below = I32(U32(_draw(w, i) >> U32(1))) < I32(w[THRESHOLD * LANES + i])
        w[target * LANES + i] = U32(w[target * LANES + i] + (amount if below else U32(0)))


@inline
def _clear(w, target):
    for i in range(U64(LANES)):
        w[target * LANES + i] = U32(0)


@inline
def _count_binomial(w, length):
    """COUNT ← Binomial(length, THRESHOLD/2³¹), by comparing `length` uniforms with the threshold bit by bit.

    A uniform is below p at the first bit in which they differ. Of n still undecided, Binomial(n, ½) have a next bit of
    one: the number of ones in n random bits. Half of them are decided at each of the 31 bits, so about 2n bits serve
    where n draws would take 32n. PLACE holds the undecided, INDEX the ones.
    """
    _clear(w, COUNT)
    for i in range(U64(LANES)):
        w[PLACE * LANES + i] = U32(length)
    most = length
    for bit in range(30, -1, -1):
        _clear(w, INDEX)
        for word in range((most + 31) // 32):
            for i in range(U64(LANES)):
                left = I32(w[PLACE * LANES + i]) - I32(32 * word)
                left = I32(min(max(left, I32(0)), I32(32)))
                mask = U32(U64((U64(1) << U64(left)) - U64(1)))
                ones = _ones_in(U32(_draw_if(w, i, left > I32(0)) & mask))
                w[INDEX * LANES + i] = U32(w[INDEX * LANES + i] + ones)
        most = 0
        for i in range(U64(LANES)):
            undecided, ones = w[PLACE * LANES + i], w[INDEX * LANES + i]
            one_in_p = U32(U32(w[THRESHOLD * LANES + i] >> U32(bit)) & U32(1)) == U32(1)
            zeros = U32(undecided - ones)
            w[COUNT * LANES + i] = U32(w[COUNT * LANES + i] + (zeros if one_in_p else U32(0)))
            undecided = ones if one_in_p else zeros
            w[PLACE * LANES + i] = undecided
            most = max(most, np.int64(undecided))
        if most == 0:
            break


@inline
def _laplace(bits):
    """A standard Laplace variate from 32 bits: sign from the lowest, −log of the uniform from the others.

    log u = e·log 2 + log m, m in [1, 2) through atanh's series in s = (m − √2)/(m + √2), |s| < 0.1716: s¹¹/11 < 4e-10.
    """
    uniform = _bits_of(F32(I32(U32(U32(bits >> U32(1)) | U32(1)))))
    exponent = F32(I32(U32(uniform >> U32(23))) - I32(127 + 31))
    m = _float_of(U32(U32(uniform & U32(0x7FFFFF)) | U32(0x3F800000)))
    s = F32(m - F32(1.4142135)) / F32(m + F32(1.4142135))
    z = F32(s * s)
    series = F32(2.0) * s * (F32(1.0) + z * (F32(1 / 3) + z * (F32(0.2) + z * (F32(1 / 7) + z * F32(1 / 9)))))
    size = -(exponent * F32(0.6931472) + F32(0.3465736) + series)
    return size if U32(bits & U32(1)) == U32(1) else -size


@inline
def _add_noise(w, f, scale):
    for i in range(U64(LANES)):
        f[NOISE * LANES + i] += scale * _laplace(_draw(w, i))


@inline
def _average(d, i, value, inverse, square, centre):
    """Take `value` into lane i's running mean and into its two sums of Algorithm 2 about `centre`."""
    running = d[MEAN * LANES + i] + (value - d[MEAN * LANES + i]) * inverse
    d[MEAN * LANES + i] = running
    off = running - centre
    d[SQUARES * LANES + i] += square * off * off
    d[LINES * LANES + i] += square * off


@inline
def _keep_inside(d, i, value, low, high):
    d[INSIDE * LANES + i] = d[INSIDE * LANES + i] if (value >= low) & (value <= high) else 0.0


@inline
def _normalizer(d, i, job):
    """V = (Va − 2·Vb·Q + Vp·Q²)/(T²·Vs), all about the centre (Algorithm 2)."""
    off = d[MEAN * LANES + i] - job.centre
    value = d[SQUARES * LANES + i] - 2.0 * d[LINES * LANES + i] * off + job.moment * off * off
    return max(value / (job.total * job.averaged * job.averaged), 0.0)


@inline
def _draw_knot(w, i, place, shift):
    """DRAW ← a draw; INDEX ← one of the two knots beside `place`, chosen by the draw's low bits."""
    bits = _draw(w, i)
    w[DRAW * LANES + i] = bits
    w[INDEX * LANES + i] = U32(U32(place + U32(U32(bits & U32(1023)) << U32(shift - U32(10)))) >> shift)


@inline
def _look_up(w, f, table):
    """NEAR ← S at the knots in INDEX."""
    for i in range(U64(LANES)):
        f[NEAR * LANES + i] = table[w[INDEX * LANES + i]]


@inline
def _is_below(w, i, threshold):
    return F32(I32(U32(w[DRAW * LANES + i] >> U32(1)))) < threshold


@inline
def _walk(w, d, f, c, tables, rise, fall, length, shift):
    """A client's own walk from q, one report after the other; COUNT keeps the ones."""
    up, down = U32(round(rise * c.unit)), U32(-round(fall * c.unit))
    low, unit, base, slope, table = c.low, c.unit, c.base, c.slope, tables[c.table :]
    half = float(U32(1) << U32(shift - U32(11)))
    for i in range(U64(LANES)):
        w[PLACE * LANES + i] = _place_of(d[Q * LANES + i], low, unit, half)
        w[COUNT * LANES + i] = U32(0)
    left = U32(length)
    while left > U32(0):
        left = U32(left - U32(1))
        for i in range(U64(LANES)):
            _draw_knot(w, i, w[PLACE * LANES + i], shift)
        _look_up(w, f, table)
        for i in range(U64(LANES)):
            below = _is_below(w, i, base + slope * f[NEAR * LANES + i])
            w[COUNT * LANES + i] = U32(w[COUNT * LANES + i] + (U32(1) if below else U32(0)))
            w[PLACE * LANES + i] = U32(w[PLACE * LANES + i] + (up if below else down))


@inline
def _cohort_turn(w, d, f, pools, k, first, length, top, fixed, noisy, records):
    """All records of a run of clients alike answer about the same q; returns how many clients that are."""
    clients, _, _, tables, data = pools
    c = clients[k]
    base, slope, whole, scale = c.base, c.slope, c.whole, c.noise
    if not fixed:
        if not c.same_group:
            _survivals(w, d, f, c, tables, top)
        _thresholds(w, f, base, slope)
    left = U32(c.run)
    if length == 1 and not fixed:
        while left > U32(0):
            left = U32(left - U32(1))
            _add_reports(w, TOTAL, whole)
            if noisy:
                _add_noise(w, f, scale)
    while left > U32(0):
        left = U32(left - U32(1))
        if length == 1:
            _known_record(w, d, f, data[first], base, slope)
            _add_reports(w, TOTAL, whole)
        else:
            _clear(w, COUNT)
            if fixed:
                for j in range(U64(length)):
                    _known_record(w, d, f, data[first + j], base, slope)
                    _add_reports(w, COUNT, U32(1))
            elif length < 12:
                reports = U32(length)
                while reports > U32(0):
                    reports = U32(reports - U32(1))
                    _add_reports(w, COUNT, U32(1))
            else:
                _count_binomial(w, length)
            each = c.move / length  # only here: a GPU takes as long for it as for the rest of a round of one record
            for i in range(U64(LANES)):
                d[MOVE * LANES + i] += each * I32(w[COUNT * LANES + i])
        first += records
        if noisy:
            _add_noise(w, f, scale)
    return U64(c.run)


@inline
def _local_turn(w, d, f, job, pools, k, first, length, each):
    """Algorithm 1: a client moves its own q after each of its E reports."""
    clients, _, _, tables, data = pools
    c = clients[k]
    rise, fall, share = c.rise * each, c.fall * each, c.share
    if job.data >= 0:
        lie, tell = c.lie, c.tell
        for i in range(U64(LANES)):
            d[OWN * LANES + i] = d[Q * LANES + i]
        for j in range(U64(length)):
            x = data[first + j]
            for i in range(U64(LANES)):
                below = _draw(w, i) < (tell if x > d[OWN * LANES + i] else lie)
                d[OWN * LANES + i] += rise if below else -fall
        for i in range(U64(LANES)):
            d[MOVE * LANES + i] += share * (d[OWN * LANES + i] - d[Q * LANES + i])
    else:
        _walk(w, d, f, c, tables, rise, fall, length, U32(job.shift))
        gain, loss = share * (rise + fall), share * fall * length
        for i in range(U64(LANES)):
            d[MOVE * LANES + i] += gain * I32(w[COUNT * LANES + i]) - loss
    return U64(1)


@inline
def _synchronised(w, d, f, job, pools, first_lane, path, keep):
    """Rounds that end in a synchronised q: cohort mode, the paper's C1, DP-SGD; Algorithm 1."""
    clients, rounds, lengths, _, _ = pools
    in_cohort, unequal = job.kind == COHORT, job.first_length >= 0
    fixed, noisy, records, top = job.data >= 0, job.noisy != 0, U64(job.records), job.cells - 1e-6
    begun = U64(max(job.data, 0))
    first_client, number = U64(job.first_client), U64(job.clients)
    m, last = U32(0), U32(job.rounds)
    while m < last:
        r = rounds[U64(job.first_round) + U64(m)]
        step, length, each = r.step, r.length, r.each
        drift = 0.0 if unequal else job.drift
        k = U64(0)
        while k < number:
            first = begun + k * records
            if unequal:
                own = U64(job.first_length) + k * U64(last) + U64(m)
                length = np.int64(lengths[own])
                if length == 0:
                    k += U64(1)
                    continue
                each = step / length
                first += U64(lengths[own + number * U64(last)])
                drift += clients[first_client + k].drift
            if in_cohort:
                k += _cohort_turn(w, d, f, pools, first_client + k, first, length, top, fixed, noisy, records)
            else:
                k += _local_turn(w, d, f, job, pools, first_client + k, first, length, each)
        if not unequal:
            begun += U64(length)
        if in_cohort:
            unit = job.unit
            for i in range(U64(LANES)):
                # One report of a round of one record counts `unit`; the sums start from zero in the next round.
                moved = d[MOVE * LANES + i] + f[NOISE * LANES + i] + unit * I32(w[TOTAL * LANES + i])
                d[MOVE * LANES + i] = step * (moved - drift)
                w[TOTAL * LANES + i] = U32(0)
                f[NOISE * LANES + i] = F32(0.0)
        inverse, square, centre, low, high = r.inverse, r.square, job.centre, job.low, job.high
        for i in range(U64(LANES)):
            value = d[Q * LANES + i] + d[MOVE * LANES + i]
            d[MOVE * LANES + i] = 0.0
            d[Q * LANES + i] = value
            _keep_inside(d, i, value, low, high)
            if inverse > 0.0:
                _average(d, i, value, inverse, square, centre)
        if keep and inverse > 0.0:
            row = m - U32(job.rounds - np.int64(job.averaged))
            for i in range(U64(LANES)):
                path[row, first_lane + i] = d[MEAN * LANES + i]
        m = U32(m + U32(1))


@inline
def _divided(w, d, f, job, pools, start, first_lane, result):
    """Divide and conquer: every client runs alone, its update not divided by r_k; then Q and V are averaged."""
    clients, rounds, _, tables, data = pools
    fixed, shift, number = job.data >= 0, U32(job.shift), job.clients
    half = float(U32(1) << U32(shift - U32(11)))
    for i in range(U64(LANES)):
        result[0, first_lane + i], result[1, first_lane + i] = 0.0, 0.0
    for k in range(U64(number)):
        c = clients[U64(job.first_client) + k]
        low, unit, base, slope, table = c.low, c.unit, c.base, c.slope, tables[c.table :]
        rise, fall, centre, least, most = c.rise, c.fall, job.centre, job.low, job.high
        for i in range(U64(LANES)):
            d[Q * LANES + i] = start[first_lane + i]
            d[MEAN * LANES + i], d[SQUARES * LANES + i], d[LINES * LANES + i] = 0.0, 0.0, 0.0
        m, last = U32(0), U32(job.rounds)
        while m < last:
            r = rounds[U64(job.first_round) + U64(m)]
            if fixed:
                x = data[U64(job.data) + k * U64(job.records) + U64(m)]
                for i in range(U64(LANES)):
                    w[DRAW * LANES + i] = _draw(w, i)
                    f[NEAR * LANES + i] = F32(1.0) if x > d[Q * LANES + i] else F32(0.0)
            else:
                for i in range(U64(LANES)):
                    _draw_knot(w, i, _place_of(d[Q * LANES + i], low, unit, half), shift)
                _look_up(w, f, table)
            up, down, inverse, square = rise * r.step, -fall * r.step, r.inverse, r.square
            for i in range(U64(LANES)):
                value = d[Q * LANES + i] + (up if _is_below(w, i, base + slope * f[NEAR * LANES + i]) else down)
                d[Q * LANES + i] = value
                _keep_inside(d, i, value, least, most)
                _average(d, i, value, inverse, square, centre)
            m = U32(m + U32(1))
        for i in range(U64(LANES)):
            result[0, first_lane + i] += d[MEAN * LANES + i] / number
            result[1, first_lane + i] += _normalizer(d, i, job) / number


@inline
def _replicate(w, d, f, job, pools, words, start, result, lane, path, keep):
    """LANES replications of a job, from its lane `lane` on; w, d and f are scratch.

    result: by lane the estimate, the normaliser, and 1 where q stayed in the job's range. path: the running means,
    averaged rounds by lanes, when `keep` is true.
    """
    first = U64(U64(job.first_lane) + U64(lane))
    for i in range(U64(LANES)):
        for part in range(U64(4)):
            w[part * U64(LANES) + i] = words[part, first + i]
        w[TOTAL * LANES + i], f[NOISE * LANES + i] = U32(0), F32(0.0)
        d[Q * LANES + i], d[MEAN * LANES + i], d[SQUARES * LANES + i] = start[first + i], 0.0, 0.0
        d[LINES * LANES + i], d[MOVE * LANES + i], d[INSIDE * LANES + i] = 0.0, 0.0, 1.0
    if job.kind == DIVIDED:
        _divided(w, d, f, job, pools, start, first, result)
    else:
        _synchronised(w, d, f, job, pools, first, path, keep)
        for i in range(U64(LANES)):
            result[0, first + i] = d[MEAN * LANES + i]
            result[1, first + i] = _normalizer(d, i, job)
    for i in range(U64(LANES)):
        result[2, first + i] = d[INSIDE * LANES + i]


@njit(cache=True, nogil=True, error_model="numpy")
def simulate(jobs, clients, rounds, lengths, tables, data, words, start, result, path):
    """Every job, one after the other; for the CPU."""
    w, d, f = np.empty(WORDS * LANES, np.uint32), np.empty(DOUBLES * LANES), np.empty(FLOATS * LANES, np.float32)
    pools = (clients, rounds, lengths, tables, data)
    for index in range(jobs.size):
        for lane in range(0, JOB_LANES, LANES):
            _replicate(w, d, f, jobs[index], pools, words, start, result, lane, path, path.shape[0] > 0)


def simulate_on_gpu(jobs, clients, rounds, lengths, tables, data, words, start, result):
    """One lane of one job per thread; to be compiled by cuda.py. Two or four blocks of threads share a job."""
    w = cuda.local.array(WORDS, np.uint32)
    d = cuda.local.array(DOUBLES, np.float64)
    f = cuda.local.array(FLOATS, np.float32)
    pools = (clients, rounds, lengths, tables, data)
    block, threads = U64(cuda.blockIdx.x), U64(cuda.blockDim.x)
    parts = U64(JOB_LANES) // threads
    lane = block % parts * threads + U64(cuda.threadIdx.x)
    _replicate(w, d, f, jobs[block // parts], pools, words, start, result, lane, result, False)


@inline
def _unit(w, i):
    """A double strictly inside (0, 1), from 64 bits."""
    high = np.uint64(_draw(w, i))
    return (float(np.uint64(high << np.uint64(21)) ^ np.uint64(_draw(w, i) >> U32(11))) + 0.5) * 2.0**-53


@inline
def _gauss(w, i):
    """A standard normal variate (Box–Muller, the second one thrown away)."""
    return math.sqrt(-2.0 * math.log(_unit(w, i))) * math.cos(2.0 * math.pi * _unit(w, i))


@njit
def _gamma(w, i, shape):
    """A Gamma(shape, 1) variate (Marsaglia and Tsang; below 1 through shape + 1)."""
    boost = 1.0
    if shape < 1.0:
        boost = _unit(w, i) ** (1.0 / shape)
        shape += 1.0
    d = shape - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        z = _gauss(w, i)
        v = (1.0 + c * z) ** 3
        if v > 0.0 and math.log(_unit(w, i)) < 0.5 * z * z + d - d * v + d * math.log(v):
            return boost * d * v


@njit
def _record(w, i, first, last, kinds, cumulative, locations, scales, shapes, values, sizes):
    """One record of a client whose population is the mixture of parts first … last − 1."""
    part = first
    if last > first + 1:
        u = _unit(w, i)
        while part < last - 1 and u >= cumulative[part]:
            part += 1
    kind, z = kinds[part], 0.0
    if kind in (NORMAL, LOG_NORMAL):
        z = _gauss(w, i)
    elif kind == UNIFORM:
        z = _unit(w, i)
    elif kind == CAUCHY:
        z = math.tan(math.pi * (_unit(w, i) - 0.5))
    elif kind == DOUBLE_EXPONENTIAL:
        z = math.log(_unit(w, i)) - math.log(_unit(w, i))
    elif kind == STUDENT_T:
        z = _gauss(w, i) / math.sqrt(2.0 * _gamma(w, i, 0.5 * shapes[part]) / shapes[part])
    else:
        x = values[np.int64(shapes[part]) + np.int64(_unit(w, i) * sizes[part])]
        return x + scales[part] * (_unit(w, i) - 0.5) if scales[part] > 0.0 else x
    x = locations[part] + scales[part] * z
    return math.exp(x) if kind == LOG_NORMAL else x


@inline
def _normalizers(mean, squares, lines, centre, weights, skip):
    """The means and V = (Va − 2·Vb·Q + Vp·Q²)/(T²·Vs), all about `centre` (Algorithm 2)."""
    rounds = weights.size - skip
    total, moment = 0.0, 0.0
    for m in range(rounds):
        total += weights[skip + m]
        moment += weights[skip + m] * (m + 1.0) * (m + 1.0)
    result = np.empty((2, LANES))
    for i in range(LANES):
        off = mean[i] - centre
        value = (squares[i] - 2.0 * lines[i] * off + moment * off * off) / (total * rounds * rounds)
        result[0, i] = mean[i]
        result[1, i] = max(value, 0.0)
    return result


@njit(cache=True, nogil=True, error_model="numpy")
def drawn(words, start, sampler, clients, rounds, in_cohort, noises):
    """The listing, record by record: every x drawn, two coins tossed (truth with probability r, else a fair coin).

    Slow and plain on purpose: it shares no table, no fixed point and no shortcut with the kernels above.
    noises: empty, or for DP-SGD the Laplace scale of each client (then rates are 1).
    """
    firsts, kinds, cumulative, locations, scales, shapes, values, sizes = sampler
    rates, shares, level = clients
    lengths, steps, weights, skip, centre = rounds
    w = words.copy()
    seen = np.empty((2, LANES))
    mean, squares, lines = np.zeros(LANES), np.zeros(LANES), np.zeros(LANES)
    for i in range(LANES):
        q = start[i]
        seen[0, i], seen[1, i] = q, q
        for m in range(steps.size):
            moved = 0.0
            for k in range(rates.size):
                length = lengths[min(k, lengths.shape[0] - 1), m]
                if length == 0:
                    continue
                rate = rates[k]
                step = steps[m] / length
                rise = (1.0 - rate + 2.0 * level * rate) / (2.0 * rate) * step
                fall = (1.0 + rate - 2.0 * level * rate) / (2.0 * rate) * step
                own = q
                asked = q
                for _ in range(length):
                    x = _record(
                        w, i, firsts[k], firsts[k + 1], kinds, cumulative, locations, scales, shapes, values, sizes
                    )
                    report = x > asked
                    if _unit(w, i) >= rate:
                        report = _unit(w, i) < 0.5
                    own += rise if report else -fall
                    if noises.size > 0:
                        own += step * noises[k] * (math.log(_unit(w, i)) - math.log(_unit(w, i)))
                    if not in_cohort:
                        asked = own
                moved += shares[k] * (own - q)
            q += moved
            seen[0, i], seen[1, i] = min(seen[0, i], q), max(seen[1, i], q)
            number = m + 1 - skip
            if number > 0:
                mean[i] += (q - mean[i]) / number
                off = mean[i] - centre
                squares[i] += weights[m] * number * number * off * off
                lines[i] += weights[m] * number * number * off
    return _normalizers(mean, squares, lines, centre, weights, skip), seen

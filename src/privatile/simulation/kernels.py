"""Compiled Monte Carlo kernels: many replications side by side, one per lane.

All compiled code lives in this one file: the cache of compiled functions notices edits of this file alone.

**Lanes.** The innermost loop runs over `LANES` replications, so it becomes vector instructions; everything a lane
needs sits in one array of 32-bit words, at constant distances, which lets the compiler prove that lanes never touch
each other. A lane's numbers depend on its own generator only: how replications are cut into blocks changes nothing.

**Generator.** xoshiro128++ (Blackman and Vigna), 128 bits of state per lane, seeded outside.

**Reports in law.** Given q, a report is 1 with probability (1−r)/2 + r·S(q), S = 1 − F. Drawing that Bernoulli is the
same in law as drawing x and the coin. S comes from a table of float32 on a uniform grid. Where one value serves many
draws it is interpolated; where every draw has its own q the low ten bits of the draw pick one of the two neighbouring
knots with the right odds instead, whose mean *is* the interpolation, to half a step of 2⁻¹⁰ of a cell. The tables are
fine enough that the error of a probability stays below 1e-6. `drawn` needs no table: it draws every record.

Conventions: w holds the lanes' words, i counts lanes, k clients, m rounds; lengths has one row (all clients alike) or
one per client. Arguments that belong together arrive as one tuple:

    grid     tables, rows, lows, inverses, groups   for each group of clients with one distribution its table's row and
                                                    grid; for each client its group
    clients  rates, shares, level
    rounds   lengths, steps, weights, skip, centre
"""
# Numba compiles this file from its own types; a type checker sees neither them nor the intrinsics.
# mypy: ignore-errors

from __future__ import annotations

import math

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

LANES = 128
"""Replications per block: enough to fill vector registers several times, few enough for the first-level cache."""

U32 = np.uint32
F32 = np.float32

# Places in a lane's words, in units of LANES.
DRAW, INDEX, COUNT, THRESHOLD, PLACE, TOTAL, WORDS = 4, 5, 6, 7, 8, 9, 10

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


@njit(forceinline=True)
def _rotate(x, k):
    return U32(U32(x << U32(k)) | U32(x >> U32(32 - k)))


@njit(forceinline=True)
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


@njit(forceinline=True)
def _draw_if(w, i, wanted):
    """The next 32 bits of lane i; where they are not wanted the generator stays where it is."""
    s0, s1, s2, s3 = w[i], w[LANES + i], w[2 * LANES + i], w[3 * LANES + i]
    value = _draw(w, i)
    w[i] = w[i] if wanted else s0
    w[LANES + i] = w[LANES + i] if wanted else s1
    w[2 * LANES + i] = w[2 * LANES + i] if wanted else s2
    w[3 * LANES + i] = w[3 * LANES + i] if wanted else s3
    return value


@njit(forceinline=True)
def _place(q, low, inverse, fraction):
    """q on the table's grid as a 32-bit fixed-point number, plus half a step of the dither that will be added."""
    # Through a signed word, which vectors can convert to, and back by flipping the top bit.
    return U32(U32(np.int32(((q - low) * inverse + 1.0 / 2048.0) * fraction - 2147483648.0)) ^ U32(0x80000000))


@njit(forceinline=True)
def _survivals(w, q, low, inverse, table, row, top, parts, above):
    """above ← S(q), interpolated; outside the grid its end value. Gathers stand alone: the rest is vectors."""
    for i in range(np.uint64(LANES)):
        at = min(max((q[i] - low) * inverse, 0.0), top)
        knot = np.int32(at)
        w[INDEX * LANES + i] = U32(knot)
        parts[0, i] = F32(at - knot)
    for i in range(np.uint64(LANES)):
        knot = w[INDEX * LANES + i]
        parts[1, i] = table[row, knot]
        parts[2, i] = table[row, knot + U32(1)]
    for i in range(np.uint64(LANES)):
        above[i] = parts[1, i] + parts[0, i] * (parts[2, i] - parts[1, i])


@njit(forceinline=True)
def _thresholds(w, above, rate):
    """THRESHOLD ← 2³¹·((1−r)/2 + r·S): a report is 1 when the upper 31 bits of its draw are below."""
    base = F32((1.0 - rate) * 1073741824.0)
    # A hair less than 2³¹, so that S = 1 without privacy still fits a signed word.
    slope = F32(rate * 2147483520.0)
    for i in range(np.uint64(LANES)):
        w[THRESHOLD * LANES + i] = U32(np.int32(base + slope * above[i]))


@njit(forceinline=True)
def _record_thresholds(w, q, x, rate, truth):
    """THRESHOLD for a known record x: S is 1 above q, else 0."""
    for i in range(np.uint64(LANES)):
        truth[i] = F32(1.0) if x > q[i] else F32(0.0)
    _thresholds(w, truth, rate)


@njit(forceinline=True)
def _add_reports(w, target, amount):
    """One report of every lane against its threshold; a yes adds `amount` to the target."""
    for i in range(np.uint64(LANES)):
        # Signed comparisons are one instruction.
        below = np.int32(U32(_draw(w, i) >> U32(1))) < np.int32(w[THRESHOLD * LANES + i])
        w[target * LANES + i] = U32(w[target * LANES + i] + (amount if below else U32(0)))


@njit(forceinline=True)
def _clear(w, target):
    for i in range(np.uint64(LANES)):
        w[target * LANES + i] = U32(0)


@njit(forceinline=True)
def _count_binomial(w, length):
    """COUNT ← Binomial(length, THRESHOLD/2³¹), by comparing `length` uniforms with the threshold bit by bit.

    A uniform is below p at the first bit in which they differ. Of n still undecided, Binomial(n, ½) have a next bit of
    one: the number of ones in n random bits. Half of them are decided at each of the 31 bits, so about 2n bits serve
    where n draws would take 32n. PLACE holds the undecided, INDEX the ones.
    """
    _clear(w, COUNT)
    for i in range(np.uint64(LANES)):
        w[PLACE * LANES + i] = U32(length)
    most = length
    for bit in range(30, -1, -1):
        _clear(w, INDEX)
        for word in range((most + 31) // 32):
            for i in range(np.uint64(LANES)):
                # How many of this word's bits belong to undecided ones: 0 … 32, clamped without a branch.
                left = np.int32(w[PLACE * LANES + i]) - np.int32(32 * word)
                left = np.int32(min(max(left, np.int32(0)), np.int32(32)))
                mask = U32(np.uint64((np.uint64(1) << np.uint64(left)) - np.uint64(1)))
                # A decided lane draws no more: its generator must not depend on its neighbours.
                ones = _ones_in(U32(_draw_if(w, i, left > np.int32(0)) & mask))
                w[INDEX * LANES + i] = U32(w[INDEX * LANES + i] + ones)
        most = 0
        for i in range(np.uint64(LANES)):
            undecided, ones = w[PLACE * LANES + i], w[INDEX * LANES + i]
            one_in_p = U32(U32(w[THRESHOLD * LANES + i] >> U32(bit)) & U32(1)) == U32(1)
            zeros = U32(undecided - ones)
            w[COUNT * LANES + i] = U32(w[COUNT * LANES + i] + (zeros if one_in_p else U32(0)))
            undecided = ones if one_in_p else zeros
            w[PLACE * LANES + i] = undecided
            most = max(most, np.int64(undecided))
        if most == 0:
            break


@njit(forceinline=True)
def _laplace(bits):
    """A standard Laplace variate from 32 bits: sign from the lowest, −log of the uniform from the others.

    log u = e·log 2 + log m, m in [1, 2) through atanh's series in s = (m − √2)/(m + √2), |s| < 0.1716: s¹¹/11 < 4e-10.
    """
    uniform = _bits_of(F32(np.int32(U32(U32(bits >> U32(1)) | U32(1)))))
    exponent = F32(np.int32(U32(uniform >> U32(23))) - np.int32(127 + 31))
    m = _float_of(U32(U32(uniform & U32(0x7FFFFF)) | U32(0x3F800000)))
    s = (m - F32(1.4142135)) / (m + F32(1.4142135))
    z = s * s
    series = F32(2.0) * s * (F32(1.0) + z * (F32(1 / 3) + z * (F32(0.2) + z * (F32(1 / 7) + z * F32(1 / 9)))))
    size = -(exponent * F32(0.6931472) + F32(0.3465736) + series)
    return size if U32(bits & U32(1)) == U32(1) else -size


@njit(forceinline=True)
def _begin(words, start):
    """What every kernel keeps per lane: words, q, the running mean, the two sums of Algorithm 2, the range of q."""
    w = np.zeros(WORDS * LANES, np.uint32)
    w[: 4 * LANES] = words
    seen = np.empty((2, LANES))
    seen[0], seen[1] = start, start
    return w, start.copy(), np.zeros(LANES), np.zeros(LANES), np.zeros(LANES), seen


@njit(forceinline=True)
def _average(mean, squares, lines, i, value, inverse, square, centre):
    """Take `value` into lane i's running mean and into its two sums of Algorithm 2 about `centre`."""
    running = mean[i] + (value - mean[i]) * inverse
    mean[i] = running
    off = running - centre
    squares[i] += square * off * off
    lines[i] += square * off


@njit(forceinline=True)
def _close_round(q, mean, squares, lines, seen, move, centre, number, weight):
    """q ← q + move; then the averages, unless `number`, m counted from the first averaged round, is not positive."""
    inverse = 1.0 / max(number, 1)
    square = weight * number * number
    for i in range(np.uint64(LANES)):
        value = q[i] + move[i]
        move[i] = 0.0
        q[i] = value
        seen[0, i] = min(seen[0, i], value)
        seen[1, i] = max(seen[1, i], value)
        if number > 0:
            _average(mean, squares, lines, i, value, inverse, square, centre)


@njit(forceinline=True)
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


@njit(forceinline=True)
def _fixed_point(tables):
    """Bits right of a knot's number in a 32-bit place, bits right of the dither's, and the cell's width."""
    shift = U32(32 - round(math.log2(tables.shape[1] - 1)))
    return shift, U32(shift - U32(10)), float(1 << shift)


@njit(forceinline=True)
def _line(rate):
    """A report is 1 when the upper 31 bits of its draw are below base + slope·S."""
    return F32((1.0 - rate) * 1073741824.0), F32(rate * 2147483648.0)


@njit(forceinline=True)
def _draw_knot(w, i, place, dither, shift):
    """DRAW ← a draw; INDEX ← one of the two knots beside `place`, chosen by the draw's low bits."""
    bits = _draw(w, i)
    w[DRAW * LANES + i] = bits
    knot = U32(place + U32(U32(bits & U32(1023)) << dither))
    w[INDEX * LANES + i] = U32(knot >> shift)


@njit(forceinline=True)
def _look_up(w, near, table, row):
    """near ← S at the knots in INDEX."""
    for i in range(np.uint64(LANES)):
        near[i] = table[row, w[INDEX * LANES + i]]


@njit(forceinline=True)
def _is_below(w, i, threshold):
    return F32(np.int32(U32(w[DRAW * LANES + i] >> U32(1)))) < threshold


@njit(forceinline=True)
def _walk_step(w, near, table, row, dither, shift, base, slope, up, down):
    """One report of every lane at its own place; the place moves up or down, COUNT keeps the ones."""
    for i in range(np.uint64(LANES)):
        _draw_knot(w, i, w[PLACE * LANES + i], dither, shift)
    _look_up(w, near, table, row)
    for i in range(np.uint64(LANES)):
        below = _is_below(w, i, base + slope * near[i])
        w[COUNT * LANES + i] = U32(w[COUNT * LANES + i] + (U32(1) if below else U32(0)))
        w[PLACE * LANES + i] = U32(w[PLACE * LANES + i] + (up if below else down))


@njit(cache=True, nogil=True, error_model="numpy")
def cohort(words, start, grid, clients, rounds, scales, data, path):
    """All records of a round answer about the same q; with E = 1 also the paper's C1, and DP-SGD.

    scales: empty, or for DP-SGD the Laplace scale of each client. data: empty, or one fixed data set, clients by
    records. path: empty, or rounds by lanes, for the running means.
    Returns means and normalisers, and the lowest and highest q of each lane.
    """
    tables, rows, lows, inverses, groups = grid
    rates, shares, level = clients
    lengths, steps, weights, skip, centre = rounds
    w, q, mean, squares, lines, seen = _begin(words, start)
    above = np.zeros((rows.size, LANES), np.float32)
    parts = np.zeros((3, LANES), np.float32)
    truth, noise = np.zeros(LANES, np.float32), np.zeros(LANES, np.float32)
    move = np.zeros(LANES)
    cells = tables.shape[1] - 1
    noisy, fixed = scales.size > 0, data.size > 0
    # One report of client k moves q by γ·p_k/(r_k·E); rounds of one record add these as whole multiples of a unit.
    moves = shares / rates
    unit = moves.sum() / 1073741824.0
    whole = np.empty(rates.size, np.uint32)
    for k in range(rates.size):
        whole[k] = U32(round(moves[k] / unit))
    used = np.zeros(rates.size, np.int64)
    for m in range(steps.size):
        drift = 0.0
        # The client whose thresholds are in place; clients alike use them again.
        ready = -1
        if not fixed:
            for g in range(rows.size):
                _survivals(w, q, lows[g], inverses[g], tables, rows[g], cells - 1e-6, parts, above[g])
        for k in range(rates.size):
            length = lengths[min(k, lengths.shape[0] - 1), m]
            if length == 0:
                continue
            drift += shares[k] * ((1.0 - rates[k]) / (2.0 * rates[k]) + 1.0 - level)
            if not fixed and (ready < 0 or groups[k] != groups[ready] or rates[k] != rates[ready]):
                _thresholds(w, above[groups[k]], rates[k])
                ready = k
            if length == 1:
                if fixed:
                    _record_thresholds(w, q, data[k, used[k]], rates[k], truth)
                _add_reports(w, TOTAL, whole[k])
            else:
                _clear(w, COUNT)
                if fixed:
                    for j in range(length):
                        _record_thresholds(w, q, data[k, used[k] + j], rates[k], truth)
                        _add_reports(w, COUNT, U32(1))
                elif length < 12:
                    for _ in range(length):
                        _add_reports(w, COUNT, U32(1))
                else:
                    _count_binomial(w, length)
                each = moves[k] / length
                for i in range(np.uint64(LANES)):
                    move[i] += each * np.int32(w[COUNT * LANES + i])
            if noisy:
                scale = F32(shares[k] * scales[k])
                for i in range(np.uint64(LANES)):
                    noise[i] += scale * _laplace(_draw(w, i))
            used[k] += length
        step = steps[m]
        for i in range(np.uint64(LANES)):
            # One report of a round of one record counts `unit`; the sums start from zero in the next round.
            move[i] = step * (move[i] + noise[i] + unit * np.int32(w[TOTAL * LANES + i]) - drift)
            w[TOTAL * LANES + i] = U32(0)
            noise[i] = F32(0.0)
        number = m + 1 - skip
        _close_round(q, mean, squares, lines, seen, move, centre, number, weights[m])
        if number > 0 and path.shape[0] > 0:
            path[number - 1] = mean
    return _normalizers(mean, squares, lines, centre, weights, skip), seen


@njit(cache=True, nogil=True, error_model="numpy")
def local(words, start, grid, clients, rounds, data, path):
    """Algorithm 1: a client moves its own q after each of its E reports, then q ← Σ p_k q_k.

    With a fixed data set only the coins differ between replications.
    """
    tables, rows, lows, inverses, groups = grid
    rates, shares, level = clients
    lengths, steps, weights, skip, centre = rounds
    w, q, mean, squares, lines, seen = _begin(words, start)
    near = np.zeros(LANES, np.float32)
    own, move = np.zeros(LANES), np.zeros(LANES)
    shift, dither, fraction = _fixed_point(tables)
    fixed = data.size > 0
    used = np.zeros(rates.size, np.int64)
    for m in range(steps.size):
        for k in range(rates.size):
            length = lengths[min(k, lengths.shape[0] - 1), m]
            if length == 0:
                continue
            rate, share, g = rates[k], shares[k], groups[k]
            step = steps[m] / length
            rise = (1.0 - rate + 2.0 * level * rate) / (2.0 * rate) * step
            fall = (1.0 + rate - 2.0 * level * rate) / (2.0 * rate) * step
            if fixed:
                lie, tell = U32((1.0 - rate) * 2147483648.0), U32(min((1.0 + rate) * 2147483648.0, 4294967295.0))
                for i in range(np.uint64(LANES)):
                    own[i] = q[i]
                for j in range(length):
                    x = data[k, used[k] + j]
                    for i in range(np.uint64(LANES)):
                        own[i] += rise if _draw(w, i) < (tell if x > own[i] else lie) else -fall
                for i in range(np.uint64(LANES)):
                    move[i] += share * (own[i] - q[i])
                used[k] += length
                continue
            unit = inverses[g] * fraction
            up, down = U32(round(rise * unit)), U32(-round(fall * unit))
            base, slope = _line(rate)
            low, inverse = lows[g], inverses[g]
            for i in range(np.uint64(LANES)):
                w[PLACE * LANES + i] = _place(q[i], low, inverse, fraction)
                w[COUNT * LANES + i] = U32(0)
            for _ in range(length):
                _walk_step(w, near, tables, rows[g], dither, shift, base, slope, up, down)
            gain, loss = share * (rise + fall), share * fall * length
            for i in range(np.uint64(LANES)):
                move[i] += gain * np.int32(w[COUNT * LANES + i]) - loss
        number = m + 1 - skip
        _close_round(q, mean, squares, lines, seen, move, centre, number, weights[m])
        if number > 0 and path.shape[0] > 0:
            path[number - 1] = mean
    return _normalizers(mean, squares, lines, centre, weights, skip), seen


@njit(cache=True, nogil=True, error_model="numpy")
def divided(words, start, grid, rates, levels, steps, centre, data):
    """Divide and conquer: every client runs alone, its update not divided by r_k; then Q and V are averaged."""
    tables, rows, lows, inverses, groups = grid
    w, q, mean, squares, lines, seen = _begin(words, start)
    near = np.zeros(LANES, np.float32)
    total = np.zeros((2, LANES))
    weights = np.ones(steps.size)
    shift, dither, fraction = _fixed_point(tables)
    fixed = data.size > 0
    for k in range(rates.size):
        rate, level, g = rates[k], levels[k], groups[k]
        rise, fall = (1.0 - rate + 2.0 * level * rate) / 2.0, -(1.0 + rate - 2.0 * level * rate) / 2.0
        base, slope = _line(rate)
        low, inverse, row = lows[g], inverses[g], rows[g]
        for i in range(np.uint64(LANES)):
            q[i], mean[i], squares[i], lines[i] = start[i], 0.0, 0.0, 0.0
        for m in range(steps.size):
            if fixed:
                x = data[k, m]
                for i in range(np.uint64(LANES)):
                    w[DRAW * LANES + i] = _draw(w, i)
                    near[i] = F32(1.0) if x > q[i] else F32(0.0)
            else:
                for i in range(np.uint64(LANES)):
                    _draw_knot(w, i, _place(q[i], low, inverse, fraction), dither, shift)
                _look_up(w, near, tables, row)
            up, down = rise * steps[m], fall * steps[m]
            over = 1.0 / (m + 1.0)
            square = (m + 1.0) * (m + 1.0)
            for i in range(np.uint64(LANES)):
                value = q[i] + (up if _is_below(w, i, base + slope * near[i]) else down)
                q[i] = value
                _average(mean, squares, lines, i, value, over, square, centre)
                seen[0, i] = min(seen[0, i], value)
                seen[1, i] = max(seen[1, i], value)
        total += _normalizers(mean, squares, lines, centre, weights, 0) / rates.size
    return total, seen


@njit(forceinline=True)
def _unit(w, i):
    """A double strictly inside (0, 1), from 64 bits."""
    high = np.uint64(_draw(w, i))
    return (float(np.uint64(high << np.uint64(21)) ^ np.uint64(_draw(w, i) >> U32(11))) + 0.5) * 2.0**-53


@njit(forceinline=True)
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

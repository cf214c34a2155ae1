"""The executor on programs whose times can be worked out by hand; times in microseconds, links of 1 byte per microsecond."""

import numpy as np

from netsim.kernels.structs import CATEGORIES, TIMERS
from tests.programs import US, comm, compute, groups, host, play, programs

TP, PP, DP = (CATEGORIES.index(c) for c in ("tp", "pp", "dp"))


def ends(x):
    return (x.end / US).tolist()


def test_stream_is_in_order():
    x = play(programs([[compute(3), compute(4)]]), groups(1), [0], [])
    assert ends(x) == [7]
    assert (x.record_end / US).tolist() == [3, 7]
    assert x.busy[0, 0] == 7 * US


def test_call_waits_for_the_slowest_member():
    # GPU 1 computes twice as long: the call starts at 20, moves 5 bytes, and GPU 0 has waited 10 for GPU 1
    x = play(programs([[compute(10), comm(0), compute(1)]]), groups(2, [[0, 1]]), [0, 0], [5], slow=[1.0, 2.0])
    assert ends(x) == [26, 27]
    assert (x.exposed[:, TP] / US).tolist() == [5, 5]
    assert (x.bubble / US).tolist() == [10, 0]


def test_launch_and_fill_frame_the_transfer():
    x = play(programs([[comm(0)]]), groups(2, [[0, 1]]), [0, 0], [5], launch=2 * US, fill=3 * US)
    assert ends(x) == [10, 10]


def test_overlapped_call_costs_only_what_is_exposed():
    # the call (8) runs beside a kernel (5); the next kernel waits 3
    p = programs([[compute(2), compute(5), compute(1, deps=[(1, 0)])], [comm(0, category="dp", deps=[(0, 0)])]])
    x = play(p, groups(2, [[0, 1]]), [0, 0], [8])
    assert ends(x) == [11, 11]
    assert (x.exposed[:, DP] / US).tolist() == [3, 3]
    assert (x.busy[:, 0] / US).tolist() == [8, 8]


def test_kernels_slow_down_while_calls_hold_sms():
    # from 2 to 10 the call holds half of the SMs: 8 us at half speed do 4 of 6 us of work, 2 us at full speed the rest
    p = programs([[compute(2), compute(6)], [comm(0, category="dp", deps=[(0, 0)])]])
    x = play(p, groups(2, [[0, 1]]), [0, 0], [8], sms=50)
    assert ends(x) == [12, 12]


def test_sms_are_held_while_waiting_for_peers():
    # GPU 1 arrives at 12; GPU 0's second kernel (4 us of work from 2) runs at half speed from its own arrival at 2
    p = programs([[compute(2), compute(4)], [comm(0, category="dp", deps=[(0, 0)])]])
    x = play(p, groups(2, [[0, 1]]), [0, 0], [1], sms=50, slow=[1.0, 6.0])
    kernel_of_gpu_0 = x.record_end[1] / US
    assert kernel_of_gpu_0 == 10


def test_a_kernel_that_the_host_launches_late_is_not_shortened_by_calls_before_it():
    # the call holds half of the SMs from 0 to 4; the host launches the kernel of 1 us at 10
    p = programs([[compute(1, deps=[(2, 0)])], [comm(0, category="dp")], [host(10)]])
    x = play(p, groups(2, [[0, 1]]), [0, 0], [4], sms=50)
    assert (x.record_begin[0] / US, x.record_end[0] / US, ends(x)) == (10, 11, [11, 11])


def test_a_kernel_that_is_over_is_not_lengthened_by_calls_after_it():
    # at half speed from 0 to 2, beside a first call; when that ends, a second one takes SMs at 20, for which the host is ready then
    p = programs([[compute(6)], [comm(0, category="dp", deps=[(2, 0), (3, 0)])], [host(20)], [comm(1, category="dp")]])
    x = play(p, groups(2, [[0, 1]], [[0, 1]]), [0, 0], [2], sms=50)
    assert (x.record_end[0] / US, ends(x)) == (7, [22, 22])


def test_pipeline_wait_is_bubble_until_both_are_ready():
    # stage 1 posts its receive at 0; stage 0 sends at 10; transfer takes 4: 10 us bubble, 4 us exposed
    sender = [[compute(10)], [comm(0, category="pp", deps=[(0, 0)])]]
    receiver = [[compute(1, deps=[(1, 0)])], [comm(0, category="pp")]]
    x = play(programs(sender, receiver), groups(2, [[0, 1]]), [0, 1], [4])
    assert ends(x) == [14, 15]
    assert x.bubble[1] == 10 * US
    assert x.exposed[1, PP] == 4 * US


def test_idle_end_is_bubble():
    # the other stream outlives the compute stream
    x = play(programs([[compute(1)], [comm(0, category="dp")]]), groups(2, [[0, 1]]), [0, 0], [9])
    assert ends(x) == [9, 9]
    assert (x.bubble / US).tolist() == [8, 8]


def test_time_of_compute_stream_is_fully_accounted():
    p = programs(
        [[compute(3), comm(0), compute(2, deps=[(1, 0)]), comm(0, call=1)], [comm(1, call=2, category="dp", deps=[(0, 0)])]],
    )
    x = play(p, groups(4, [[0, 1], [2, 3]], [[0, 2], [1, 3]]), [0] * 4, [5, 6, 20], slow=[1, 1.5, 1, 2], sms=7)
    total = x.busy.sum(axis=1) + x.exposed.sum(axis=1) + x.bubble
    assert total.tolist() == x.end.tolist()


def test_signal_that_was_given_long_ago_keeps_its_time():
    # compute runs ahead to 30; the second stream's first row ends at 5, its next waits for the kernel that ended at 10
    p = programs([[compute(10), compute(20)], [comm(0, category="dp"), comm(0, category="dp", deps=[(0, 0)])]])
    x = play(p, groups(2, [[0, 1]]), [0, 0], [5])
    assert np.unique(x.record_end / US).tolist() == [5, 10, 15, 30]


def test_one_launch_queue_holds_kernels_behind_a_call_that_has_not_started():
    # two calls of 8 on one stream, the second launched before the kernel of 5: it starts at 10, and only then does the kernel
    calls = [comm(0, category="dp", deps=[(0, 0)]), comm(0, category="dp", deps=[(0, 0)])]
    free = programs([[compute(2), compute(5)], calls])
    queued = programs([[compute(2), compute(5, deps=[(1, 1, "start")])], calls])
    grps = groups(2, [[0, 1]])
    assert ends(play(free, grps, [0, 0], [8])) == [18, 18]
    x = play(queued, grps, [0, 0], [8])
    assert (x.record_end[1] / US, ends(x)) == (15, [18, 18])
    assert (x.exposed[:, DP] / US).tolist() == [8, 8]
    assert (x.timers[:, TIMERS.index("all-grads-sync")] / US).tolist() == [8, 8]


def test_a_call_that_waits_for_its_peers_has_started():
    # GPU 1 calls at 6; the kernel behind the call on GPU 0 starts at 2 all the same
    p = programs([[compute(2), compute(5, deps=[(1, 0, "start")])], [comm(0, category="dp", deps=[(0, 0)])]])
    x = play(p, groups(2, [[0, 1]]), [0, 0], [1], slow=[1.0, 3.0])
    assert x.record_end[1] / US == 7


def test_a_call_launched_behind_a_kernel_starts_with_it():
    # the call needs nothing, but was launched after the second kernel, which starts at 3
    p = programs([[compute(3), compute(4), compute(1)], [comm(0, category="dp", deps=[(0, 1, "start")])]])
    x = play(p, groups(2, [[0, 1]]), [0, 0], [2])
    assert (x.record_start[3] / US, x.record_end[3] / US) == (3, 5)
    assert ends(x) == [8, 8]


def test_timers_divide_the_time_of_the_compute_stream():
    # forward 3, call of 5 in it, wait of 12 for a message, backward 2
    rows = [compute(3), (*comm(0)[:4], "forward", ()), compute(2, category="backward", deps=[(1, 0)])]
    p = programs([rows, [comm(1, call=1, category="pp")]])
    x = play(p, groups(2, [[0, 1]], [[0, 1]]), [0, 0], [5, 20])
    seconds = {name: int(v) // US for name, v in zip(TIMERS, x.timers[0], strict=True) if v}
    assert seconds == {"forward-compute": 8, "forward-recv": 12, "backward-compute": 2}
    assert x.timers[0].sum() == x.end[0]

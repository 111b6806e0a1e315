// A warp that goes round a loop for ever and comes to no place where others go on: nobody but a clock can tell. It is
// that of the thread, whose signal finds the fiber at work; what a fiber does may be left at any point.
#pragma once
#include "calls.h"

#include <signal.h>
#include <sys/syscall.h>

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

namespace kg {

enum { TICKS = 8 };  // in which a warp does not let go of its thread

static void tick(int)
{
    if (!current || !current->running) return;
    if (current->switches != current->switches_seen) current->switches_seen = current->switches, current->ticks = 0;
    if (++current->ticks <= TICKS) return;
    Runner* r = current->running;
    char text[1024];
    int length = 0, first = -1;
    for (const int* loop = r->warp.loops; loop && *loop >= 0 && length < 900; loop += 2) {
        if (loop[0] != r->warp.place) continue;
        if (first < 0) first = loop[1];
        else length += snprintf(text + length, sizeof text - (size_t)length, " @%d", loop[1]);
    }
    text[length] = 0;
    fail(r, "hang", first, "the warp goes round for ever%s%s", length ? ", there or at" : "", text);
}

// Ticks come for every so many seconds that a thread works, from its first launch on: setting and stopping a clock takes
// longer than a small launch may.
static thread_local struct Clockwork {
    timer_t timer;
    double seconds = 0;
    pid_t process = 0;  // a forked one has no timers

    void wind(double wanted)
    {
        if (seconds == wanted && process == getpid()) return;
        if (process != getpid()) {
            struct sigaction action = {};
            action.sa_handler = tick, action.sa_flags = SA_NODEFER | SA_RESTART;  // it may not return
            sigevent event = {};
            event.sigev_notify = SIGEV_THREAD_ID, event.sigev_signo = SIGRTMAX - 3;
            event.sigev_notify_thread_id = (int)syscall(SYS_gettid);
            sigaction(event.sigev_signo, &action, nullptr);
            if (timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer) != 0) return;
            process = getpid();
        }
        const long each = (long)(wanted * 1e9 / TICKS);
        const timespec period = {each / 1000000000, each % 1000000000};
        const itimerspec times = {period, period};
        timer_settime(timer, 0, &times, nullptr);
        seconds = wanted;
    }
    ~Clockwork()
    {
        if (process == getpid()) timer_delete(timer);
    }
} clockwork;

}  // namespace kg

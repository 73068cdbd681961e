/* Streams, events and graphs of the device that cuda_runtime.h stands in for, as badly timed as the toolkit permits.
 *
 * What a stream is told waits until the host, or a stream that the host waits for, waits for it: whoever forgets to
 * wait finds that nothing has been done. With HOST_EAGER in the environment streams of high priority do at once what
 * they can: then it shows if they forget to wait for the others. With HOST_AT_ONCE all streams do. A step that cannot
 * be done yet (it needs another process) holds up its stream alone.
 *
 * A capture keeps what its streams are told, on a lane each. A launch puts the first lane's steps on the stream that it
 * is launched on, and makes queues for the others. What the toolkit refuses is refused: an event of outside of a
 * capture waited for within, or of one in another; a lane that does not come back. */
#ifndef TESTS_CUDA_STREAMS_H
#define TESTS_CUDA_STREAMS_H

#include <sched.h>

#include <chrono>
#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace host {

/* True once it is done. */
typedef std::function<bool()> step;

struct queue {
    std::deque<step> steps;
    bool running = false, eager = false;
};

/* A place that a queue comes to. */
struct mark {
    std::shared_ptr<queue> of;
    bool done = false;
    std::chrono::steady_clock::time_point time; /* when it was done */
};

inline std::recursive_mutex lock;
inline std::vector<std::weak_ptr<queue>> queues;

inline std::shared_ptr<queue> make_queue(bool high_priority) {
    std::lock_guard<std::recursive_mutex> hold(lock);
    auto made = std::make_shared<queue>();
    made->eager = getenv("HOST_AT_ONCE") || (high_priority && getenv("HOST_EAGER"));
    for (size_t i = queues.size(); i-- > 0;)
        if (queues[i].expired()) queues.erase(queues.begin() + (long)i);
    queues.push_back(made);
    return made;
}

/* What a queue can do now. */
inline void run(queue &q) {
    if (q.running) return;
    q.running = true;
    while (!q.steps.empty() && q.steps.front()()) q.steps.pop_front();
    q.running = false;
}

inline void run_all() {
    std::lock_guard<std::recursive_mutex> hold(lock);
    for (size_t i = 0; i < queues.size(); i++)
        if (auto q = queues[i].lock()) run(*q);
}

inline void add(const std::shared_ptr<queue> &q, step what) {
    q->steps.push_back(std::move(what));
    if (q->eager) run(*q);
}

inline void add_mark(const std::shared_ptr<queue> &q, const std::shared_ptr<mark> &m) {
    m->of = q;
    add(q, [m] {
        m->time = std::chrono::steady_clock::now();
        return m->done = true;
    });
}

inline void add_wait(const std::shared_ptr<queue> &q, const std::shared_ptr<mark> &m) {
    add(q, [m] {
        if (!m->done) run(*m->of);
        return m->done;
    });
}

/* --- Graphs --- */

enum kind { WORK, RECORD, WAIT };
struct entry {
    enum kind kind;
    size_t lane, number; /* of the mark that is made or waited for */
    step work;
};

struct graph {
    std::vector<entry> entries;
    std::vector<bool> eager; /* lanes */
    size_t marks = 0;
};

struct stream;
struct capture {
    graph made;
    std::vector<stream *> lanes;
};

/* Virtual, since libraries that were loaded tell streams of the program what to do. */
struct stream {
    std::shared_ptr<queue> own;
    std::shared_ptr<capture> captured;
    bool high_priority;
    unsigned looks = 0; /* that found something left to do */

    explicit stream(bool high_priority) : own(make_queue(high_priority)), high_priority(high_priority) {}
    virtual ~stream() = default;

    size_t lane() const {
        size_t i = 0;
        while (captured->lanes[i] != this) i++;
        return i;
    }
    virtual void submit(step what) {
        std::lock_guard<std::recursive_mutex> hold(lock);
        if (captured)
            captured->made.entries.push_back({WORK, lane(), 0, std::move(what)});
        else
            add(own, std::move(what));
    }
    void join(const std::shared_ptr<capture> &other) {
        captured = other;
        other->lanes.push_back(this);
        other->made.eager.push_back(own->eager);
    }
};

struct event {
    std::shared_ptr<mark> last;        /* recorded outside of captures */
    std::shared_ptr<capture> captured; /* or in this one */
    size_t number = 0;                 /* as that mark of it */
};

inline void record(event *e, stream *s) {
    std::lock_guard<std::recursive_mutex> hold(lock);
    e->captured = s->captured;
    if (s->captured) {
        e->number = s->captured->made.marks++;
        s->captured->made.entries.push_back({RECORD, s->lane(), e->number, nullptr});
    } else {
        e->last = std::make_shared<mark>();
        add_mark(s->own, e->last);
    }
}

/* False: not permitted. */
inline bool wait(stream *s, event *e) {
    std::lock_guard<std::recursive_mutex> hold(lock);
    if (e->captured && e->captured->lanes.empty()) return false; /* that capture has ended */
    if (e->captured && !s->captured) s->join(e->captured);
    if (e->captured != s->captured) return !e->last && !e->captured;
    if (s->captured)
        s->captured->made.entries.push_back({WAIT, s->lane(), e->number, nullptr});
    else if (e->last)
        add_wait(s->own, e->last);
    return true;
}

/* What a lane was told last, some other lane waits for. */
inline bool comes_back(const graph &g, size_t lane) {
    const entry *last = nullptr;
    for (const entry &e : g.entries)
        if (e.lane == lane) last = &e;
    if (!last) return true;
    for (const entry &e : g.entries)
        if (last->kind == RECORD && e.kind == WAIT && e.number == last->number && e.lane != lane) return true;
    return false;
}

inline void begin_capture(stream *s) {
    std::lock_guard<std::recursive_mutex> hold(lock);
    s->join(std::make_shared<capture>());
}

inline graph *end_capture(stream *s) {
    std::lock_guard<std::recursive_mutex> hold(lock);
    auto ended = s->captured;
    bool ok = ended && ended->lanes[0] == s;
    for (size_t lane = 1; ok && lane < ended->lanes.size(); lane++) ok = comes_back(ended->made, lane);
    for (stream *one : ended->lanes) one->captured = nullptr;
    ended->lanes.clear();
    return ok ? new graph(std::move(ended->made)) : nullptr; /* events may outlive it */
}

/* Copies of steps are as they were when they were captured. */
inline void launch(const graph &g, stream *s) {
    std::lock_guard<std::recursive_mutex> hold(lock);
    std::vector<std::shared_ptr<queue>> lanes = {s->own};
    std::vector<std::shared_ptr<mark>> marks;
    for (size_t lane = 1; lane < g.eager.size(); lane++) {
        lanes.push_back(make_queue(false));
        lanes.back()->eager = g.eager[lane];
    }
    for (size_t i = 0; i < g.marks; i++) marks.push_back(std::make_shared<mark>());
    for (const entry &e : g.entries) {
        if (e.kind == WORK) add(lanes[e.lane], e.work);
        if (e.kind == RECORD) add_mark(lanes[e.lane], marks[e.number]);
        if (e.kind == WAIT) add_wait(lanes[e.lane], marks[e.number]);
    }
}

/* True once the stream has done all that it was told. If it cannot go on for long, all streams do what they can: one of
 * them may have what another process needs first. */
inline bool idle(stream *s) {
    std::lock_guard<std::recursive_mutex> hold(lock);
    run(*s->own);
    if (!s->own->steps.empty() && ++s->looks % 16 == 0) run_all();
    return s->own->steps.empty();
}

} /* namespace host */

#endif

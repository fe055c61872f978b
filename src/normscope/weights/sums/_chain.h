/* chain(dtype, initial, previous, sources, wanted, block, totals, scratch, seconds): sum the same stretch of a tensor
 * in several checkpoints, without returning to Python in between.
 *
 * A source is a buffer, or (descriptor, offset, bytes) of a file. `block` bytes of all sources are summed before the
 * next block, so that the predecessor and the first checkpoint are still in the cache; those of files are read into
 * `scratch`, which is used over and over and stays there too. For each source whose mark in `wanted` is 1, the six
 * sums of the block are added to the next row of `totals`. If `previous` is None, the first source has no
 * predecessor; if `initial` is None, the first source is the initial one. `seconds` gets one double per source: how
 * long it took to read and sum it.
 *
 * If a source cannot be read, Unreadable(index, errno) is raised: -2 for initial, -1 for previous, and errno 0 if a
 * file, mapped or not, has become too short. `totals` is then of no use. */
typedef struct { const char *memory; int file; off_t offset; Py_ssize_t size; } Source; /* size -1: there is none */

typedef struct {
    Source *all, *at; /* initial, previous, and `count` more, which begin at `at` */
    Py_ssize_t count, size, block, stride;
    const char *wanted;
    char *scratch; /* three blocks, `stride` bytes apart: one of the first checkpoint, one of the predecessor, one to sum */
    double *seconds; /* of each source; NULL if nobody asks */
    Py_ssize_t failed;
    int error;
} Chain;

static PyObject *unreadable; /* the exception; made once at import */

/* The block of a source: where it is, or read from a file to `into`; NULL if that fails, with errno. */
static const char *fetch(const Source *source, Py_ssize_t start, size_t bytes, char *into) {
    if (source->size < 0) return NULL;
    if (source->memory) return source->memory + start;
    for (size_t done = 0; done < bytes;) {
        ssize_t got = pread(source->file, into + done, bytes - done, source->offset + start + (off_t)done);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) { if (!got) errno = 0; return NULL; }
        done += (size_t)got;
    }
    return into;
}

static double now(const Chain *c) {
    struct timespec t;
    if (!c->seconds || clock_gettime(CLOCK_MONOTONIC, &t)) return 0;
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int failed_at(Chain *c, Py_ssize_t which) { c->error = errno; c->failed = which; return 0; }

/* One block of all sources; 0 if one of them cannot be read. */
static int walk_block(DType dtype, Chain *c, Py_ssize_t start, size_t bytes, double *to) {
    const int has_initial = c->all[0].size >= 0, has_previous = c->all[1].size >= 0;
    char *spare[2] = {c->scratch + c->stride, c->scratch + 2 * c->stride};
    const char *first = fetch(&c->all[0], start, bytes, c->scratch), *before = fetch(&c->all[1], start, bytes, spare[1]);
    if (has_initial && !first) return failed_at(c, -2);
    if (has_previous && !before) return failed_at(c, -1);
    double began = now(c);
    for (Py_ssize_t k = 0; k < c->count; k++) {
        const char *theta = fetch(&c->at[k], start, bytes, k || has_initial ? spare[k & 1] : c->scratch);
        if (!theta) return failed_at(c, k);
        if (!first) first = theta;
        if (c->wanted[k]) {
            const Source *next = k + 1 < c->count && c->at[k + 1].memory ? &c->at[k + 1] : NULL;
            for (size_t line = 0; next && line < AHEAD && line < bytes; line += 64)
                __builtin_prefetch(next->memory + start + line);
            Sums s = {0};
            walk(dtype, theta, before, first, bytes / WIDTH[dtype], &s);
            to[0] += s.sumsq; to[1] += s.dot; to[2] += s.sumsq_delta; to[3] += s.dot_init;
            if (s.absmax > to[4]) to[4] = s.absmax;
            to[5] += (double)s.nonfinite;
            to += 6;
        }
        before = theta;
        if (c->seconds) {
            const double ended = now(c);
            c->seconds[k] += ended - began;
            began = ended;
        }
    }
    return 1;
}

static void walk_chain(DType dtype, Chain *c, double *totals) {
    for (Py_ssize_t start = 0; start < c->size; start += c->block) {
        size_t bytes = (size_t)(c->size - start < c->block ? c->size - start : c->block);
        if (!walk_block(dtype, c, start, bytes, totals)) return;
    }
}

/* The same for sources in memory that may be mapped files. */
static void walk_guarded(DType dtype, Chain *c, double *totals, const Range *ranges) {
    Guard guard;
    guard.ranges = ranges;
    guard.count = (size_t)c->count + 2;
    const int slot = enter_guard(&guard);
    if (!sigsetjmp(guard.back, 1)) walk_chain(dtype, c, totals);
    leave_guard(slot);
    if (!guard.lost) return;
    errno = 0;
    for (Py_ssize_t k = 0; k < c->count + 2; k++)
        if (guard.lost >= ranges[k].from && guard.lost < ranges[k].from + ranges[k].size) { failed_at(c, k - 2); return; }
}

/* What is wrong with the arguments of chain, or NULL. */
static const char *fault(int dtype, const Chain *c, Py_ssize_t wanted, Py_ssize_t rows, Py_ssize_t clocks) {
    if (dtype < 0 || dtype >= DTYPES) return "unknown dtype number";
    if (!c->count || wanted != c->count) return "expected one mark in wanted for each buffer";
    for (Py_ssize_t k = 0; k < c->count; k++) {
        if (c->at[k].size < 0) return "a buffer may not be None";
        rows -= c->wanted[k] ? 6 * (Py_ssize_t)sizeof(double) : 0;
    }
    if (rows < 0) return "totals has too few rows";
    if (c->seconds && clocks / (Py_ssize_t)sizeof(double) < c->count) return "seconds has too few places";
    int files = 0;
    for (Py_ssize_t k = 0; k < c->count + 2; k++) {
        if (c->all[k].size >= 0 && c->all[k].size != c->size) return "the arrays differ in length";
        files |= c->all[k].size > 0 && !c->all[k].memory;
    }
    if (c->size % (Py_ssize_t)WIDTH[dtype] || c->block < 1 || c->block % (Py_ssize_t)WIDTH[dtype])
        return "expected a whole number of elements";
    if (files && c->stride < (c->size < c->block ? c->size : c->block)) return "scratch must have three blocks";
    return NULL;
}

/* Borrow a source: a buffer, a tuple about a file, or None. Returns 0 on error. */
static int borrow(PyObject *from, Py_buffer *view, Source *source) {
    source->size = -1;
    if (from == Py_None) return 1;
    if (PyTuple_Check(from)) {
        long long offset, size;
        if (!PyArg_ParseTuple(from, "iLL", &source->file, &offset, &size)) return 0;
        if (offset < 0 || size < 0) { PyErr_SetString(PyExc_ValueError, "an offset is negative"); return 0; }
        source->offset = (off_t)offset;
        source->size = (Py_ssize_t)size;
        return 1;
    }
    if (PyObject_GetBuffer(from, view, PyBUF_SIMPLE) < 0) return 0;
    source->memory = view->buf ? view->buf : "";
    source->size = view->len;
    return 1;
}

/* What of each chain is allocated: for initial, previous and each of the other sources. */
typedef struct { Py_buffer *views; Source *sources; Range *ranges; } Borrowed;

static int borrow_all(Borrowed *b, PyObject *initial, PyObject *previous, PyObject *several, Py_ssize_t count) {
    if (count < 0) return 0; /* not a sequence: nothing is allocated, so nothing is released */
    const size_t total = (size_t)count + 2;
    b->views = PyMem_Calloc(total, sizeof *b->views);
    b->sources = PyMem_Calloc(total, sizeof *b->sources);
    b->ranges = PyMem_Calloc(total, sizeof *b->ranges);
    if (!b->views || !b->sources || !b->ranges) { PyErr_NoMemory(); return 0; }
    for (Py_ssize_t k = 0; k < count + 2; k++) {
        PyObject *from = k == 0 ? initial : k == 1 ? previous : PySequence_GetItem(several, k - 2);
        int good = from && borrow(from, &b->views[k], &b->sources[k]);
        if (k >= 2) Py_XDECREF(from); /* the view keeps it alive */
        if (!good) return 0;
        if (b->sources[k].memory && b->sources[k].size > 0)
            b->ranges[k] = (Range){b->sources[k].memory, (size_t)b->sources[k].size};
    }
    return 1;
}

static void release_all(Borrowed *b, Py_ssize_t count) {
    for (Py_ssize_t k = 0; b->views && k < count + 2; k++) if (b->views[k].obj) PyBuffer_Release(&b->views[k]);
    PyMem_Free(b->views);
    PyMem_Free(b->sources);
    PyMem_Free(b->ranges);
}

static int is_in_memory(const Borrowed *b, Py_ssize_t count) {
    for (Py_ssize_t k = 0; k < count + 2; k++) if (b->ranges[k].size) return 1;
    return 0;
}

static PyObject *chain(PyObject *self, PyObject *args) {
    (void)self;
    int dtype;
    PyObject *initial, *previous, *several;
    Py_buffer wanted, totals, scratch = {0}, seconds = {0};
    Borrowed b = {0};
    Chain c = {0};
    if (!PyArg_ParseTuple(args, "iOOOy*nw*|w*w*:chain", &dtype, &initial, &previous, &several, &wanted, &c.block,
                          &totals, &scratch, &seconds))
        return NULL;
    const Py_ssize_t count = PySequence_Size(several);
    int good = borrow_all(&b, initial, previous, several, count);
    if (good) {
        c.all = b.sources; c.at = b.sources + 2; c.count = count; c.failed = count;
        c.size = count ? c.at[0].size : 0; c.wanted = wanted.buf;
        c.scratch = scratch.buf; c.stride = scratch.len / 3 / 64 * 64; c.seconds = seconds.buf;
        const char *why = fault(dtype, &c, wanted.len, totals.len, seconds.len);
        const int guarded = !why && is_in_memory(&b, count);
        if (why) PyErr_SetString(PyExc_ValueError, why);
        else if (guarded && !install_handler()) PyErr_SetString(PyExc_OSError, "no handler for SIGBUS can be installed");
        else {
            Py_BEGIN_ALLOW_THREADS
            if (guarded) walk_guarded((DType)dtype, &c, totals.buf, b.ranges);
            else walk_chain((DType)dtype, &c, totals.buf);
            Py_END_ALLOW_THREADS
            if (c.failed != count) {
                PyObject *about = Py_BuildValue("(ni)", c.failed, c.error);
                if (about) PyErr_SetObject(unreadable, about);
                Py_XDECREF(about);
            }
        }
        good = !PyErr_Occurred();
    }
    release_all(&b, count);
    PyBuffer_Release(&wanted);
    PyBuffer_Release(&totals);
    if (scratch.obj) PyBuffer_Release(&scratch);
    if (seconds.obj) PyBuffer_Release(&seconds);
    if (!good) return NULL;
    Py_RETURN_NONE;
}

/* Live tensors: one call from Python does a whole phase of a record: it finds the tensors in memory (_places.h) and, if they
 * are small, sums or copies them as well. */

enum { DONE, TOO_LARGE, OTHERS }; /* what the calls return: all done, nothing done, some cannot be done here */

#define WITH_LOCK 65536 /* elements; for fewer, giving up the interpreter's lock costs more than it gains */

/* One side of the sums: a list of tensors, or the places of tensors that stay where they are, or nothing. */
typedef struct { PyObject *list; Py_buffer view; const Place *known; int given; } Side;

static int open_side(PyObject *from, Py_ssize_t count, Side *side) { /* 0 if that worked */
    memset(side, 0, sizeof *side);
    if (from == Py_None) return 0;
    side->given = 1;
    if (PyList_Check(from)) {
        side->list = from;
        if (PyList_Size(from) == count) return 0;
    } else {
        if (PyObject_GetBuffer(from, &side->view, PyBUF_SIMPLE) < 0) return -1;
        side->known = side->view.buf;
        if (side->view.len == count * (Py_ssize_t)sizeof(Place)) return 0;
    }
    PyErr_SetString(PyExc_ValueError, "expected one tensor or one row of three int64 for each tensor");
    return -1;
}

static void close_side(Side *side) {
    if (side->known) PyBuffer_Release(&side->view);
}

static int side_place(const Side *side, Py_ssize_t i, PyObject *dtypes, Place *place) {
    if (side->known) {
        *place = side->known[i];
        return 0;
    }
    PyObject *tensor = PyList_GetItem(side->list, i); /* borrowed; an error if the list has become shorter */
    return tensor ? place_of(tensor, dtypes, place) : -1;
}

/* places(tensors, dtypes, out): write one row of int64 (dtype, elements, address) per tensor. */
static PyObject *places(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *tensors, *dtypes;
    Py_buffer out;
    if (!PyArg_ParseTuple(args, "O!O!w*:places", &PyList_Type, &tensors, &PyDict_Type, &dtypes, &out)) return NULL;
    Side side;
    int failed = open_side(tensors, out.len / (Py_ssize_t)sizeof(Place), &side);
    for (Py_ssize_t i = 0; !failed && i < out.len / (Py_ssize_t)sizeof(Place); i++)
        failed = side_place(&side, i, dtypes, (Place *)out.buf + i);
    PyBuffer_Release(&out);
    if (failed) return NULL;
    Py_RETURN_NONE;
}

/* Write row i of the table of sums from its sides; 0 if that worked. Its dtype is negative if it cannot be summed here. */
static int fill_row(const Place *theta, const Side *others, Py_ssize_t i, PyObject *dtypes, int64_t *row) {
    row[0] = theta->dtype; row[1] = theta->elements; row[2] = theta->address; row[3] = row[4] = 0;
    for (int k = 0; k < 2; k++) {
        Place place;
        if (!others[k].given) continue;
        if (side_place(&others[k], i, dtypes, &place)) return -1;
        if (row[0] >= 0 && (place.dtype != row[0] || place.elements != row[1])) row[0] = NOT_READABLE;
        row[3 + k] = place.address;
    }
    return 0;
}

/* sums_live(theta, previous, initial, dtypes, gradients, most, rows, out): the sums of live tensors, in one call.
 *
 * theta is a list of tensors; previous and initial are lists, or rows of `places`, or None. If gradients is true,
 * what is summed is the .grad of each tensor. rows gets the table that sums_many reads, with dtype -1 for what the
 * kernel cannot read and -2 for a gradient that is None; out gets the sums, unless some rows are such (returns 2) or
 * there are more than `most` elements in all (returns 1). */
static PyObject *sums_live(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *theta, *previous, *initial, *dtypes, *held = NULL;
    int gradients, failed, state = DONE;
    long long most;
    Py_buffer table, out;
    if (!PyArg_ParseTuple(args, "O!OOO!pLw*w*:sums_live", &PyList_Type, &theta, &previous, &initial, &PyDict_Type,
                          &dtypes, &gradients, &most, &table, &out))
        return NULL;
    Py_ssize_t count = PyList_Size(theta);
    Side others[2] = {{0}, {0}};
    failed = open_side(previous, count, &others[0]) || open_side(initial, count, &others[1]);
    if (!failed && (table.len != count * 40 || out.len != count * 48)) {
        PyErr_SetString(PyExc_ValueError, "expected rows of five int64 and of six float64");
        failed = 1;
    }
    if (!failed && gradients) failed = !(held = PyList_New(0)); /* gradients live at least as long as this call */
    int64_t elements = 0, *row = table.buf;
    for (Py_ssize_t i = 0; !failed && i < count; i++, row += 5) {
        PyObject *tensor = PyList_GetItem(theta, i), *made = NULL; /* borrowed */
        Place place = {ABSENT, 0, 0};
        if (tensor && gradients && !(made = PyObject_GetAttr(tensor, names[GRAD]))) tensor = NULL;
        if (tensor && gradients && (failed = PyList_Append(held, made))) tensor = NULL;
        if (!tensor) failed = 1;
        else if (made != Py_None) failed = place_of(gradients ? made : tensor, dtypes, &place);
        Py_XDECREF(made);
        failed = failed || fill_row(&place, others, i, dtypes, row);
        if (!failed && row[0] < 0) state = OTHERS;
        if (!failed) elements += row[1];
    }
    if (!failed && state == DONE && elements > most) state = TOO_LARGE;
    if (!failed && state == DONE) {
        PyThreadState *lock = elements > WITH_LOCK ? PyEval_SaveThread() : NULL;
        sum_rows(table.buf, count, out.buf);
        if (lock) PyEval_RestoreThread(lock);
    }
    close_side(&others[0]);
    close_side(&others[1]);
    Py_XDECREF(held);
    PyBuffer_Release(&table);
    PyBuffer_Release(&out);
    return failed ? NULL : PyLong_FromLong(state);
}

/* copy_live(tensors, targets, dtypes, most, work): copy tensors to the memory whose places are given.
 *
 * work gets the rows that copy_many reads. Nothing is copied if a tensor is not of its target's kind (returns 2) or
 * if there are more than `most` elements in all (returns 1). */
static PyObject *copy_live(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *tensors, *dtypes;
    Py_buffer targets, work;
    long long most;
    if (!PyArg_ParseTuple(args, "O!y*O!Lw*:copy_live", &PyList_Type, &tensors, &targets, &PyDict_Type, &dtypes, &most, &work))
        return NULL;
    Py_ssize_t count = PyList_Size(tensors);
    const Place *to = targets.buf;
    int64_t elements = 0, *row = work.buf;
    int failed = targets.len != count * (Py_ssize_t)sizeof(Place) || work.len != count * 24, state = DONE;
    if (failed) PyErr_SetString(PyExc_ValueError, "expected one row of three int64 for each tensor");
    for (Py_ssize_t i = 0; !failed && i < count; i++, row += 3, to++) {
        Place from;
        PyObject *tensor = PyList_GetItem(tensors, i); /* borrowed */
        failed = !tensor || place_of(tensor, dtypes, &from);
        if (failed) break;
        if (from.dtype < 0 || from.dtype != to->dtype || from.elements != to->elements) state = OTHERS;
        row[0] = to->address; row[1] = from.address; row[2] = from.dtype < 0 ? 0 : from.elements * (int64_t)WIDTH[from.dtype];
        elements += from.elements;
    }
    if (!failed && state == DONE && elements > most) state = TOO_LARGE;
    if (!failed && state == DONE) {
        PyThreadState *lock = elements > WITH_LOCK ? PyEval_SaveThread() : NULL;
        copy_rows(work.buf, count);
        if (lock) PyEval_RestoreThread(lock);
    }
    PyBuffer_Release(&targets);
    PyBuffer_Release(&work);
    return failed ? NULL : PyLong_FromLong(state);
}

/* same_values(dictionaries, known): whether the values of the dictionaries, in order, are the objects in `known`. */
static PyObject *same_values(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *dictionaries, *known, *key, *value;
    if (!PyArg_ParseTuple(args, "O!O!:same_values", &PyList_Type, &dictionaries, &PyList_Type, &known)) return NULL;
    Py_ssize_t next = 0, all = PyList_Size(known);
    for (Py_ssize_t i = 0; i < PyList_Size(dictionaries); i++) {
        PyObject *dictionary = PyList_GetItem(dictionaries, i); /* borrowed */
        Py_ssize_t at = 0;
        if (!PyDict_Check(dictionary)) return PyErr_Format(PyExc_TypeError, "expected dictionaries");
        while (PyDict_Next(dictionary, &at, &key, &value))
            if (next >= all || PyList_GetItem(known, next++) != value) Py_RETURN_FALSE;
    }
    return PyBool_FromLong(next == all);
}

/* have_gradients(tensors): whether none of the tensors has a .grad that is None. */
static PyObject *have_gradients(PyObject *self, PyObject *tensors) {
    (void)self;
    if (!PyList_Check(tensors)) return PyErr_Format(PyExc_TypeError, "expected a list of tensors");
    int all = 1;
    for (Py_ssize_t i = 0; all && i < PyList_Size(tensors); i++) {
        PyObject *tensor = PyList_GetItem(tensors, i), *made = PyObject_GetAttr(tensor, names[GRAD]); /* first: borrowed */
        if (!made) return NULL;
        all = made != Py_None;
        Py_DECREF(made);
    }
    return PyBool_FromLong(all);
}

/* Where live tensors are, asked from C. A training step leaves nothing of the interpreter's code in the processor's
 * caches, and to ask each tensor five questions through Python was the longest part of a record.
 *
 * PyTorch 2.10 and later answer all of them at once, without making an object: a table of functions (DLPack's exchange
 * API, version 1) fills a struct that says where a tensor is, of which type and shape. It is used for tensors of exactly
 * the types that give the table; a subclass, a sparse tensor or an older PyTorch is asked in Python's way. */

typedef struct { int64_t dtype, elements, address; } Place; /* dtype is -1 where the kernel cannot read the tensor */

enum { NOT_READABLE = -1, ABSENT = -2 };

/* ---- the exchange: layouts as DLPack 1 defines them ---- */

typedef struct {
    void *data;
    struct { int32_t type, id; } device;
    int32_t dimensions;
    struct { uint8_t code, bits; uint16_t lanes; } dtype;
    int64_t *shape, *strides;
    uint64_t offset;
} Described;

typedef struct {
    struct { struct { uint32_t major, minor; } version; void *older; } header;
    void *allocate, *export_object, *import_object;
    int (*describe)(void *object, Described *out); /* 0 if that worked; may be missing */
    void *stream;
} Exchange;

enum { ON_CPU = 1, FLOAT = 2, BFLOAT = 4 }; /* DLPack's numbers */

static int (*describe)(void *, Described *); /* what is used, or NULL */
static PyTypeObject *described[2];           /* and for which types */

static int dtype_of(const Described *it) { /* DTYPES if it is not one that is read here */
    if (it->dtype.lanes != 1) return DTYPES;
    if (it->dtype.code == BFLOAT) return it->dtype.bits == 16 ? BF16 : DTYPES;
    if (it->dtype.code != FLOAT) return DTYPES;
    return it->dtype.bits == 32 ? F32 : it->dtype.bits == 64 ? F64 : it->dtype.bits == 16 ? F16 : DTYPES;
}

/* Set *place if the tensor can be described and read as it is; 0 if it has to be asked in Python's way. */
static int described_place(PyObject *tensor, Place *place) {
    Described it;
    if (!describe || (Py_TYPE(tensor) != described[0] && Py_TYPE(tensor) != described[1])) return 0;
    if (describe(tensor, &it)) {
        PyErr_Clear();
        return 0;
    }
    int64_t elements = 1, dtype = dtype_of(&it);
    if (it.device.type != ON_CPU || dtype == DTYPES || (it.dimensions && !it.strides)) return 0;
    for (int32_t i = it.dimensions - 1; i >= 0; i--) { /* contiguous: each stride is the number of elements behind it */
        if (it.shape[i] != 1 && it.strides[i] != elements) return 0;
        elements *= it.shape[i];
    }
    place->dtype = dtype; place->elements = elements;
    place->address = elements ? (int64_t)(intptr_t)it.data + (int64_t)it.offset : 0;
    return 1;
}

/* exchange(types): use the exchange for tensors of these two types; returns whether they have one that is known here. */
static PyObject *exchange(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *types[2], *tables[2] = {NULL, NULL};
    if (!PyArg_ParseTuple(args, "(O!O!):exchange", &PyType_Type, &types[0], &PyType_Type, &types[1])) return NULL;
    for (int k = 0; k < 2; k++)
        if (!(tables[k] = PyObject_GetAttrString(types[k], "__dlpack_c_exchange_api__"))) PyErr_Clear();
    const Exchange *found = NULL;
    if (tables[0] && tables[0] == tables[1]) found = PyCapsule_GetPointer(tables[0], "dlpack_exchange_api");
    PyErr_Clear();
    describe = found && found->header.version.major == 1 ? found->describe : NULL;
    for (int k = 0; k < 2; k++) {
        PyTypeObject *before = described[k];
        described[k] = (PyTypeObject *)Py_NewRef(types[k]);
        Py_XDECREF((PyObject *)before);
        Py_XDECREF(tables[k]);
    }
    return PyBool_FromLong(describe != NULL);
}

/* ---- Python's way ---- */

enum { IS_CPU, IS_CONTIGUOUS, DTYPE, NUMEL, DATA_PTR, GRAD, ASKED };
static const char *const QUESTIONS[ASKED] = {"is_cpu", "is_contiguous", "dtype", "numel", "data_ptr", "grad"};
static PyObject *names[ASKED]; /* made once at import */

static int is_true(PyObject *answer) { /* takes the reference */
    int found = answer ? PyObject_IsTrue(answer) : -1;
    Py_XDECREF(answer);
    return found;
}

static int to_integer(PyObject *answer, int64_t *out) { /* takes the reference; 0 if that worked */
    *out = answer ? (int64_t)PyLong_AsLongLong(answer) : -1;
    Py_XDECREF(answer);
    return *out == -1 && PyErr_Occurred() ? -1 : 0;
}

/* Set *code to the number of the tensor's dtype if the kernel can read the tensor where it is; 0 if that worked. */
static int code_of(PyObject *tensor, PyObject *dtypes, int64_t *code) {
    *code = NOT_READABLE;
    int yes = is_true(PyObject_GetAttr(tensor, names[IS_CPU]));
    if (yes > 0) yes = is_true(PyObject_CallMethodObjArgs(tensor, names[IS_CONTIGUOUS], NULL));
    if (yes <= 0) return yes;
    PyObject *dtype = PyObject_GetAttr(tensor, names[DTYPE]);
    PyObject *known = dtype ? PyDict_GetItemWithError(dtypes, dtype) : NULL; /* borrowed */
    if (known) *code = (int64_t)PyLong_AsLongLong(known);
    Py_XDECREF(dtype);
    return PyErr_Occurred() ? -1 : 0;
}

static int place_of(PyObject *tensor, PyObject *dtypes, Place *place) { /* 0 if that worked */
    if (described_place(tensor, place)) return 0;
    place->address = 0;
    if (to_integer(PyObject_CallMethodObjArgs(tensor, names[NUMEL], NULL), &place->elements)) return -1;
    if (code_of(tensor, dtypes, &place->dtype)) return -1;
    if (place->dtype < 0) return 0;
    return to_integer(PyObject_CallMethodObjArgs(tensor, names[DATA_PTR], NULL), &place->address);
}

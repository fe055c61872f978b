"""HDF5 read without its library, and the files that Keras writes in it.

From outside, use `keras_files`; the other modules read the layers of an HDF5 file. HDF5's own library hangs
on some damaged files while it holds the interpreter's lock, opens other files that a file names, and cannot
map. What it writes is documented: https://support.hdfgroup.org/documentation/hdf5/latest/_f_m_t3.html
"""

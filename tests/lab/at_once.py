"""An executor without threads or processes: a cell is trained when it is submitted, in this process."""

from concurrent.futures import Future


class AtOnce:
    """One order, and no start of a process; what a cell raises is raised by its future."""

    def submit(self, function, /, *args, **kwargs):
        future = Future()
        try:
            future.set_result(function(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future

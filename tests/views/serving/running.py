"""A server that runs in a thread as long as a test needs it."""

import contextlib
import threading

from normscope.views.serving.page_server import PageServer


@contextlib.contextmanager
def running(answers):
    with PageServer(answers) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()

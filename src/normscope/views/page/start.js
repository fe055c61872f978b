"use strict";
// What the page does first: show its theme, then unpack its figures and scripts.

followTheme((where) => window.redrawFigures && redrawFigures(where));
if (typeof DecompressionStream === "function") Promise.all([unpack("figures"), run("plotly")]).then(([text]) => { window.packedFigures = text; return run("scripts"); });
else document.getElementById("old-browser").hidden = false;

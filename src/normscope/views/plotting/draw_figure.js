"use strict";
// A figure that stands alone in its file: unpack plotly.js and the figure, then draw it.

if (typeof DecompressionStream === "function") Promise.all([unpack("figure"), run("plotly")]).then(([text]) => {
  const figure = JSON.parse(text);
  return Plotly.newPlot("figure-here", figure.data, figure.layout, { responsive: true });
}).then(() => { document.body.dataset.drawn = "yes"; });
else document.getElementById("old-browser").hidden = false;

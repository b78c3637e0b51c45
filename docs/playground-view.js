/* The page around playground.js: controls, the picture as SVG, and the numbers. */
"use strict";

(function () {
  const root = document.getElementById("playground");
  if (!root) return;
  const CURVES = [
    ["likelihood", "likelihood (scaled)"], ["cavity", "cavity"], ["tilted", "tilted density"],
    ["KL", "KL: EP"], ["W2", "W₂: QP"], ["W1", "W₁: QP(1)"]];
  const WIDTH = 640, HEIGHT = 320, MARGIN = 26;
  const state = { name: "probit" };

  function element(tag, attributes = {}, ...children) {
    const made = tag === "svg" || tag === "path" || tag === "line" || tag === "text"
      ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  }

  /** A slider with its value beside it; `shown` turns the slider's number into the value. */
  function slider(label, [start, least, most, step], changed, shown = (x) => x) {
    const range = element("input", { type: "range", min: least, max: most, step, value: start, "aria-label": label });
    const output = element("output", {}, format(shown(Number(range.value))));
    range.addEventListener("input", () => {
      output.textContent = format(shown(Number(range.value)));
      changed(shown(Number(range.value)));
    });
    return element("label", {}, element("span", {}, label), range, output);
  }

  const format = (x) => (Math.abs(x) >= 1e-3 || x === 0 ? String(Number(x.toPrecision(4))) : x.toExponential(2));

  function choose(name) {
    const kind = LIKELIHOODS[name];
    const width = Math.round(100 * Math.log10(kind.cavity[1])) / 100;  // as the slider has it
    Object.assign(state, { name, y: kind.y[0], mean: kind.cavity[0], sd: 10 ** width, parameters: {} });
    const set = (key) => (value) => { state[key] = value; draw(); };
    const controls = [
      slider("y", kind.y, set("y")),
      slider("cavity mean", [state.mean, -6, 6, 0.05], set("mean")),
      slider("cavity sd", [width, -1, 1, 0.01], set("sd"), (x) => 10 ** x)];
    for (const [key, range] of Object.entries(kind.parameters ?? {})) {
      state.parameters[key] = Array.isArray(range) ? range[0] : range;
      if (!Array.isArray(range)) continue;
      controls.push(slider(key, range, (value) => { state.parameters[key] = value; draw(); }));
    }
    root.querySelector(".controls").replaceChildren(...controls);
    draw();
  }

  const density = (f, { mean, sd }) => Math.exp(-0.5 * ((f - mean) / sd) ** 2) / (sd * Math.sqrt(2 * Math.PI));

  /** Values of all curves on a grid of f that shows the tilted density and most of the cavity. */
  function curves(site) {
    const reach = 4 * site.KL.sd;
    const low = Math.min(site.KL.mean - reach, state.mean - 2 * state.sd);
    const high = Math.max(site.KL.mean + reach, state.mean + 2 * state.sd);
    const f = Array.from({ length: 481 }, (_, i) => low + ((high - low) * i) / 480);
    const log = f.map((at) => LIKELIHOODS[state.name].log(state.y, at, state.parameters));
    const top = Math.max(...log.filter(Number.isFinite)), cavity = { mean: state.mean, sd: state.sd };
    const tilt = f.map((at, i) => Math.exp(log[i] - site.logZ) * density(at, cavity));
    const peak = Math.max(...tilt, ...["KL", "W2", "W1"].map((rule) => density(site[rule].mean, site[rule])));
    const values = { tilted: tilt, cavity: f.map((at) => density(at, cavity)),
      likelihood: log.map((value) => 0.9 * peak * Math.exp(value - top)) };
    for (const rule of ["KL", "W2", "W1"]) values[rule] = f.map((at) => density(at, site[rule]));
    return { f, values, peak: 1.05 * peak };
  }

  function picture(site) {
    const { f, values, peak } = curves(site);
    const x = (at) => MARGIN + ((WIDTH - 2 * MARGIN) * (at - f[0])) / (f[f.length - 1] - f[0]);
    const y = (value) => HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * Math.min(value / peak, 1.2);
    const svg = element("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img",
      "aria-label": "The tilted density and the Gaussians that stand for it" });
    svg.append(element("line", { class: "axis", x1: MARGIN, x2: WIDTH - MARGIN, y1: y(0), y2: y(0) }));
    for (const at of ticks(f[0], f[f.length - 1])) {
      svg.append(element("line", { class: "axis", x1: x(at), x2: x(at), y1: y(0), y2: y(0) + 4 }),
        element("text", { x: x(at), y: y(0) + 17, "text-anchor": "middle" }, format(at)));
    }
    for (const [name] of CURVES) {
      const points = f.map((at, i) => `${x(at).toFixed(1)},${y(values[name][i]).toFixed(1)}`);
      const closed = name === "tilted" ? `M${x(f[0])},${y(0)}L${points.join("L")}L${x(f[f.length - 1])},${y(0)}Z`
        : `M${points.join("L")}`;
      svg.append(element("path", { class: `curve ${name}`, d: closed }));
    }
    return svg;
  }

  function ticks(low, high) {
    const rough = (high - low) / 7, power = 10 ** Math.floor(Math.log10(rough));
    const step = power * [1, 2, 5, 10].find((k) => k * power >= rough);
    const first = Math.ceil(low / step);
    return Array.from({ length: Math.floor(high / step) - first + 1 }, (_, i) => (first + i) * step);
  }

  function draw() {
    const site = project(state.name, state.y, state.parameters, state.mean, state.sd);
    root.querySelector(".picture").replaceChildren(picture(site));
    const rows = [["cavity", { mean: state.mean, sd: state.sd }], ["KL", site.KL], ["W2", site.W2], ["W1", site.W1]];
    const names = Object.fromEntries(CURVES);
    root.querySelector("tbody").replaceChildren(...rows.map(([name, { mean, sd }]) => element("tr", { class: name },
      element("td", {}, names[name]), ...[mean, sd, sd * sd].map((v) => element("td", {}, v.toFixed(5))))));
    root.querySelector(".log-z").textContent = `log Z = ${site.logZ.toFixed(5)}`;
  }

  const select = element("select", { "aria-label": "likelihood" },
    ...Object.entries(LIKELIHOODS).map(([name, { title }]) => element("option", { value: name }, title)));
  select.addEventListener("change", () => choose(select.value));
  const legend = element("p", { class: "legend" },
    ...CURVES.map(([name, title]) => element("span", { class: name }, title)));
  const head = element("tr", {}, ...["", "mean", "sd", "variance"].map((title) => element("th", {}, title)));
  root.replaceChildren(
    element("label", { class: "choice" }, element("span", {}, "likelihood"), select), element("div", { class: "controls" }),
    element("div", { class: "picture" }), legend,
    element("table", {}, element("thead", {}, head), element("tbody")), element("p", { class: "log-z" }));
  choose(state.name);
})();

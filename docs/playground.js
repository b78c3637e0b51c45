/* One site, computed in the browser: the tilted density p(y | f) N(f | m, s²)/Z and its KL, W2 and W1 Gaussians.
   tests/browser/test_playground.py compares it with the library. */
"use strict";

// --- special functions -----------------------------------------------------------------------------------------------

const LOG_2PI = Math.log(2 * Math.PI);

/** erfc(x) exp(x²) for x ≥ 2, by Lentz's continued fraction. */
function scaledErfc(x) {
  let c = x, d = 0, value = x;
  for (let k = 1; k < 200; k++) {
    d = 1 / (x + (k / 2) * d);
    c = x + k / 2 / c;
    value *= c * d;
    if (Math.abs(c * d - 1) < 1e-16) break;
  }
  return 1 / (value * Math.sqrt(Math.PI));
}

function erfc(x) {
  if (x < 0) return 2 - erfc(-x);
  if (x >= 2) return scaledErfc(x) * Math.exp(-x * x);
  let term = x, sum = x;  // exp(−x²) Σ 2^k x^(2k+1)/(2k+1)!!, all terms positive
  for (let k = 1; k < 60; k++) {
    term *= (2 * x * x) / (2 * k + 1);
    sum += term;
  }
  return 1 - (2 / Math.sqrt(Math.PI)) * Math.exp(-x * x) * sum;
}

function logNdtr(x) {
  const t = -x / Math.SQRT2;
  return t > 2 ? Math.log(scaledErfc(t) / 2) - t * t : Math.log(erfc(t) / 2);
}

/** Φ⁻¹ from the two tail masses, taken from the smaller one: Newton's method on log Φ, which is concave. */
function normalScore(below, above) {
  const small = Math.max(Math.min(below, above, 0.5), 1e-300), target = Math.log(small);
  let z = -Math.sqrt(Math.max(-2 * target - 1.5, 0));
  for (let k = 0; k < 60; k++) {
    const value = logNdtr(z), slope = Math.exp(-0.5 * (z * z + LOG_2PI) - value);
    const step = (target - value) / slope;
    z = Math.min(z + step, 0.5);
    if (Math.abs(step) < 1e-15 * (1 + Math.abs(z))) break;
  }
  return below < above ? z : -z;
}

const LANCZOS = [
  0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059,
  12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7];

function logGamma(x) {
  if (x < 0.5) return Math.log(Math.PI / Math.sin(Math.PI * x)) - logGamma(1 - x);
  const t = x + 6.5;
  const sum = LANCZOS.reduce((total, c, k) => (k ? total + c / (x - 1 + k) : c), 0);
  return 0.5 * LOG_2PI + (x - 0.5) * Math.log(t) - t + Math.log(sum);
}

const softplus = (x) => (x > 0 ? x + Math.log1p(Math.exp(-x)) : Math.log1p(Math.exp(x)));
const logAdd = (a, b) => Math.max(a, b) + Math.log1p(Math.exp(-Math.abs(a - b)));

// --- likelihoods -----------------------------------------------------------------------------------------------------
// `log(y, f, p)` is log p(y | f); `places(y, p)` says where p(y | ·) is narrow or rough, as [location, scale];
// `y` and the entries of `parameters` are [start, least, greatest, step].

const gauss = (y, f, scale) => -0.5 * (((y - f) / scale) ** 2 + LOG_2PI) - Math.log(scale);
const poisson = (y, logMean, mean) => (y ? y * logMean : 0) - mean - logGamma(y + 1);
const countPlace = (y) => [Math.log(Math.max(y, 0.5)), 1 / Math.sqrt(Math.max(y, 0.5))];
const SCALE = [1, 0.1, 3, 0.05];

const LIKELIHOODS = {
  probit: { title: "Probit", y: [1, -1, 1, 2], cavity: [-3, 4],
    log: (y, f) => logNdtr(y * f), places: () => [[0, 1]] },
  logit: { title: "Logit", y: [1, -1, 1, 2], cavity: [-3, 6],
    log: (y, f) => -softplus(-y * f), places: () => [[0, 1]] },
  heaviside: { title: "Heaviside", y: [1, -1, 1, 2], cavity: [-1, 1],
    parameters: { noise: [0.05, 0.001, 0.4, 0.001] },
    log: (y, f, p) => Math.log(y * f > 0 ? 1 - p.noise : p.noise), places: () => [[0, 0.1]] },
  poisson: { title: "Poisson, exp", y: [3, 0, 60, 1], cavity: [0, 2], parameters: { link: "exp" },
    log: (y, f) => poisson(y, f, Math.exp(f)), places: (y) => [countPlace(y)] },
  "poisson-square": { title: "Poisson, square", y: [3, 0, 60, 1], cavity: [0.5, 2], parameters: { link: "square" },
    log: (y, f) => poisson(y, 2 * Math.log(Math.abs(f)), f * f),
    places: (y) => [[0, 0.3], [Math.sqrt(Math.max(y, 0.5)), 0.5], [-Math.sqrt(Math.max(y, 0.5)), 0.5]] },
  "poisson-softplus": { title: "Poisson, softplus", y: [3, 0, 60, 1], cavity: [0, 4], parameters: { link: "softplus" },
    log: (y, f) => poisson(y, f < -30 ? f : Math.log(softplus(f)), softplus(f)),
    places: (y) => [[Math.max(y, 0.5), Math.sqrt(Math.max(y, 0.5))], [0, 1]] },
  "negative-binomial": { title: "Negative binomial", y: [3, 0, 60, 1], cavity: [0, 3],
    parameters: { dispersion: [1, 0.05, 5, 0.05] },
    log: (y, f, { dispersion: d }) => logGamma(1 / d + y) - logGamma(1 / d) - logGamma(y + 1)
      - y * softplus(-f - Math.log(d)) - softplus(f + Math.log(d)) / d,
    places: (y, p) => [countPlace(y), [-Math.log(p.dispersion), 1]] },
  "zero-inflated-poisson": { title: "Zero-inflated Poisson", y: [0, 0, 60, 1], cavity: [2, 1.5],
    parameters: { inflation: [0.1, 0.01, 0.9, 0.01] },
    log: (y, f, { inflation: share }) => {
      const made = Math.log1p(-share) + poisson(y, f, Math.exp(f));
      return y ? made : logAdd(Math.log(share), made);
    },
    places: (y, p) => [countPlace(y), [Math.log(Math.max(Math.log(1 / p.inflation), 0.5)), 0.3]] },
  "student-t": { title: "Student-t", y: [0, -6, 6, 0.1], cavity: [4, 1.5],
    parameters: { df: [4, 1, 30, 0.5], scale: SCALE },
    log: (y, f, { df, scale }) => logGamma((df + 1) / 2) - logGamma(df / 2) - 0.5 * Math.log(df * Math.PI)
      - Math.log(scale) - ((df + 1) / 2) * Math.log1p(((y - f) / scale) ** 2 / df),
    places: (y, p) => [[y, p.scale]] },
  "double-exponential": { title: "Double exponential", y: [0, -6, 6, 0.1], cavity: [3, 2], parameters: { scale: SCALE },
    log: (y, f, { scale }) => -Math.abs(y - f) / scale - Math.log(2 * scale), places: (y, p) => [[y, p.scale]] },
  gaussian: { title: "Gaussian", y: [0, -6, 6, 0.1], cavity: [3, 2], parameters: { scale: SCALE },
    log: (y, f, { scale }) => gauss(y, f, scale), places: (y, p) => [[y, p.scale]] },
  gamma: { title: "Gamma, exp", y: [1, 0.1, 20, 0.1], cavity: [0, 3], parameters: { shape: [1, 0.2, 10, 0.1] },
    log: (y, f, { shape: k }) => k * Math.log(k) + (k - 1) * Math.log(y) - logGamma(k) - k * f - k * y * Math.exp(-f),
    places: (y, p) => [[Math.log(y), 1 / Math.sqrt(p.shape)]] },
  weibull: { title: "Weibull, outlived y", y: [1, 0.1, 20, 0.1], cavity: [-1, 1.5], parameters: { scale: SCALE },
    log: (y, f, { scale }) => -Math.exp((Math.log(y) - f) / scale), places: (y, p) => [[Math.log(y), p.scale]] },
  "log-logistic": { title: "Log-logistic, outlived y", y: [1, 0.1, 20, 0.1], cavity: [-2, 2],
    parameters: { scale: SCALE },
    log: (y, f, { scale }) => -softplus((Math.log(y) - f) / scale), places: (y, p) => [[Math.log(y), p.scale]] },
  censored: { title: "Censored, above y", y: [1, -6, 6, 0.1], cavity: [-1, 2], parameters: { scale: SCALE },
    log: (y, f, { scale }) => logNdtr((f - y) / scale), places: (y, p) => [[y, p.scale]] },
};

// --- quadrature on panels of 16 Gauss-Legendre nodes -----------------------------------------------------------------

const DEGREE = 16;

/** P_0(x), ..., P_n(x). */
function legendre(x, n) {
  const p = [1, x];
  for (let k = 1; k < n; k++) p.push(((2 * k + 1) * x * p[k] - k * p[k - 1]) / (k + 1));
  return p;
}

const NODES = Array.from({ length: DEGREE }, (_, i) => {
  let x = -Math.cos((Math.PI * (i + 0.75)) / (DEGREE + 0.5));
  for (let k = 0; k < 50; k++) {
    const p = legendre(x, DEGREE);
    x -= (p[DEGREE] * (1 - x * x)) / (DEGREE * (p[DEGREE - 1] - x * p[DEGREE]));
  }
  return x;
});
const WEIGHTS = NODES.map((x) => (2 * (1 - x * x)) / (DEGREE * legendre(x, DEGREE)[DEGREE - 1]) ** 2);

/** ∫_{−1}^x of the polynomial through the values at the nodes. */
function partial(values, x) {
  const p = legendre(x, DEGREE);
  let total = 0;
  for (let k = 0; k < DEGREE; k++) {
    const coefficient = values.reduce((sum, v, i) => sum + WEIGHTS[i] * POLYNOMIALS[i][k] * v, 0) * (k + 0.5);
    total += coefficient * (k ? (p[k + 1] - p[k - 1]) / (2 * k + 1) : x + 1);
  }
  return total;
}

const POLYNOMIALS = NODES.map((x) => legendre(x, DEGREE));

/** Panel ends where exp(log) matters: graded around the centres, and halved where log changes fast. */
function panelEnds(log, centres) {
  const low = Math.min(...centres.map(([c, w]) => c - 45 * w)), high = Math.max(...centres.map(([c, w]) => c + 45 * w));
  const grid = centres.flatMap(([c, w]) => {
    const start = Math.asinh((low - c) / w), stop = Math.asinh((high - c) / w), steps = Math.ceil((stop - start) / 0.5);
    return [c, ...Array.from({ length: steps + 1 }, (_, k) => c + w * Math.sinh(start + ((stop - start) * k) / steps))];
  }).sort((a, b) => a - b);
  const values = grid.map(log), top = Math.max(...values);
  const kept = grid.filter((f, i) => [i - 1, i, i + 1].some((j) => values[j] > top - 60));
  const ends = [];
  const halve = (a, b, depth) => {
    const change = Math.abs(log(a) - log(b));
    if (depth < 12 && b - a > 0 && Math.max(log(a), log(b)) > top - 60 && !(change < 3)) {
      halve(a, (a + b) / 2, depth + 1);
      halve((a + b) / 2, b, depth + 1);
    } else ends.push(a);
  };
  for (let i = 0; i + 1 < kept.length; i++) if (kept[i + 1] > kept[i]) halve(kept[i], kept[i + 1], 0);
  ends.push(kept[kept.length - 1]);
  return { ends, top };
}

/** The tilted density on panels: nodes f, density q, z = Φ⁻¹(F(f)), masses; and log Z. */
function tilted(name, y, parameters, mean, sd) {
  const kind = LIKELIHOODS[name];
  const log = (f) => kind.log(y, f, parameters) - 0.5 * ((f - mean) / sd) ** 2;
  const { ends, top } = panelEnds(log, [[mean, sd], ...kind.places(y, parameters)]);
  const panels = ends.slice(1).map((b, i) => {
    const a = ends[i], half = (b - a) / 2, f = NODES.map((x) => a + half * (1 + x));
    const q = f.map((at) => Math.exp(log(at) - top));
    return { a, half, f, q, mass: half * q.reduce((sum, v, k) => sum + WEIGHTS[k] * v, 0) };
  }).filter((panel) => panel.mass > 0);
  const total = panels.reduce((sum, panel) => sum + panel.mass, 0);
  let below = 0;
  for (const panel of panels) {
    panel.q = panel.q.map((v) => v / total);
    panel.mass /= total;
    panel.below = below;
    below += panel.mass;
  }
  panels.reduceRight((above, panel) => (panel.above = above) + panel.mass, 0);
  for (const panel of panels) panel.z = NODES.map((x) => score(panel, x));
  return { panels, logZ: Math.log(total) + top - Math.log(sd) - 0.5 * LOG_2PI };
}

/** z at the place x ∈ [−1, 1] of a panel. */
function score(panel, x) {
  const left = Math.max(panel.half * partial(panel.q, x), 0);
  return normalScore(panel.below + left, panel.above + Math.max(panel.mass - left, 0));
}

function expect(panels, g) {
  return panels.reduce((sum, p) => sum + p.half * p.f.reduce((s, f, k) => s + WEIGHTS[k] * p.q[k] * g(f, p.z[k]), 0), 0);
}

// --- projections -----------------------------------------------------------------------------------------------------

/** Where f − mu − sigma z changes sign: z there, and how fast the difference grows with z. */
function crossings(panels, mu, sigma) {
  const found = [];
  let last = null;
  for (const panel of panels) {
    for (let k = 0; k < DEGREE; k++) {
      const z = panel.z[k], e = panel.f[k] - mu - sigma * z;
      if (Math.abs(z) > 8.2 || panel.q[k] === 0) continue;
      if (last && Math.sign(e) !== Math.sign(last.e)) found.push(refine(last, { panel, x: NODES[k], e }, mu, sigma));
      last = { panel, x: NODES[k], e };
    }
  }
  return { found, first: firstSign(panels, mu, sigma) };
}

function firstSign(panels, mu, sigma) {
  for (const panel of panels) {
    for (let k = 0; k < DEGREE; k++) {
      if (Math.abs(panel.z[k]) <= 8.2 && panel.q[k] > 0) return Math.sign(panel.f[k] - mu - sigma * panel.z[k]);
    }
  }
  return 0;
}

/** The root between two neighbouring nodes, by bisection in the panel that holds it. */
function refine(a, b, mu, sigma) {
  const at = (panel, x) => panel.a + panel.half * (1 + x) - mu - sigma * score(panel, x);
  let panel = a.panel, low = a.x, high = b.x;
  if (a.panel !== b.panel) {
    const middle = at(a.panel, 1);
    [panel, low, high] = Math.sign(middle) !== Math.sign(a.e) ? [a.panel, a.x, 1] : [b.panel, -1, b.x];
  }
  const sign = Math.sign(at(panel, low)) || Math.sign(a.e);
  for (let k = 0; k < 60; k++) {
    const middle = (low + high) / 2;
    if (Math.sign(at(panel, middle)) === sign) low = middle; else high = middle;
  }
  const x = (low + high) / 2, z = score(panel, x);
  const density = panel.q.reduce((sum, v, i) => sum + v * cardinal(i, x), 0);
  return { z, slope: Math.exp(-0.5 * (z * z + LOG_2PI)) / density - sigma };
}

/** Lagrange's polynomial of node i at x. */
function cardinal(i, x) {
  return NODES.reduce((product, node, k) => (k === i ? product : (product * (x - node)) / (NODES[i] - node)), 1);
}

/** (mu, sigma) of least E|f − mu − sigma z|, where g = (E[sign], E[sign z]) = 0: Newton's method from the W2 pair, with
    steps that are halved until |g| falls. */
function nearestW1(panels, mean, sd) {
  const size = expect(panels, (f, z) => Math.abs(f - mean - sd * z));
  if (size < 1e-10 * sd) return { mean, sd };  // the density is Gaussian
  let best = [mean, sd], at = newton(panels, ...best);
  for (let k = 0; k < 60 && Math.hypot(...at.step) > 1e-9 * size; k++) {
    let scale = 1, moved = best, next = at;
    for (; scale > 1e-6; scale /= 2) {
      moved = [best[0] + scale * at.step[0], best[1] + scale * at.step[1]];
      next = newton(panels, ...moved);
      if (next.level < at.level) break;
    }
    if (!(next.level < at.level)) break;
    [best, at] = [moved, next];
  }
  return { mean: best[0], sd: best[1] };
}

/** |g| and Newton's step at (mu, sigma): sums over the roots z of f − mu − sigma z, between which the sign is known. */
function newton(panels, mu, sigma) {
  const { found, first } = crossings(panels, mu, sigma);
  const phi = (z) => Math.exp(-0.5 * (z * z + LOG_2PI)), Phi = (z) => 0.5 * erfc(-z / Math.SQRT2);
  let g0 = first, g1 = 0, h00 = 0, h01 = 0, h11 = 0, sign = first;
  for (const { z, slope } of found) {
    sign = -sign;
    g0 += 2 * sign * (1 - Phi(z));
    g1 += 2 * sign * phi(z);
    const weight = (2 * phi(z)) / Math.abs(slope);
    h00 += weight;
    h01 += weight * z;
    h11 += weight * z * z;
  }
  const ridge = 1e-12 * (h00 + h11) + 1e-30, det = (h00 + ridge) * (h11 + ridge) - h01 * h01;
  const step = [((h11 + ridge) * g0 - h01 * g1) / det, ((h00 + ridge) * g1 - h01 * g0) / det];
  const long = Math.max(1, Math.hypot(...step) / (0.5 * sigma));
  return { level: Math.hypot(g0, g1), step: step.map((part) => part / long) };
}

/** log Z and the three Gaussians of one site. */
function project(name, y, parameters, mean, sd) {
  const { panels, logZ } = tilted(name, y, parameters, mean, sd);
  const centre = expect(panels, (f) => f);
  const kl = Math.sqrt(expect(panels, (f) => (f - centre) ** 2));
  const w2 = expect(panels, (f, z) => (f - centre) * z);
  return { panels, logZ, KL: { mean: centre, sd: kl }, W2: { mean: centre, sd: w2 }, W1: nearestW1(panels, centre, w2) };
}

"use strict";
// The page of a run. Data is gzipped JSON; long arrays in it are base64 of little-endian numbers: {"type": "uint32", "b64": "..."}.
const byId = id => document.getElementById(id), TYPES = { uint8: Uint8Array, uint16: Uint16Array, int16: Int16Array, uint32: Uint32Array, float32: Float32Array };
const bytes = b64 => Uint8Array.from(atob(b64), c => c.charCodeAt(0));
let D, view, full;

async function start() {
  const packed = new Blob([bytes(byId("data").textContent.trim())]).stream().pipeThrough(new DecompressionStream("gzip"));
  D = JSON.parse(await new Response(packed).text(), (_, v) => v && v.b64 !== undefined ? new TYPES[v.type](bytes(v.b64).buffer) : v);
  full = [0, D.end_s || 1e-9]; view = [...full];
  head(); timeline(); heat(); memory(); breakdown(); curves(); tables(); redraw();
  addEventListener("resize", redraw);
  document.body.dataset.ready = "yes";
}

// --- numbers for people
function time(s) {
  const a = Math.abs(s), [u, f] = a >= 1 || a === 0 ? ["s", 1] : a >= 1e-3 ? ["ms", 1e3] : a >= 1e-6 ? ["us", 1e6] : ["ns", 1e9];
  return `${+(s * f).toPrecision(4)} ${u}`;
}
function size(n) { const u = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]; let i = 0; while (n >= 1024 && i < 5) { n /= 1024; i++; } return `${+n.toPrecision(4)} ${u[i]}`; }
const percent = x => `${+(100 * x).toPrecision(3)} %`;
const make = (tag, attributes = {}, text) => { const e = document.createElement(tag); Object.assign(e, attributes); if (text !== undefined) e.textContent = text; return e; };
function tip(event, text) {
  const t = byId("tip"); t.style.display = text ? "block" : "none"; if (!text) return;
  t.textContent = text; t.style.left = Math.min(event.clientX + 14, innerWidth - t.offsetWidth - 8) + "px"; t.style.top = event.clientY + 14 + "px";
}

function head() {
  document.title = D.name; byId("title").textContent = D.name; byId("subtitle").textContent = D.subtitle;
  for (const note of D.notes) byId("notes").append(make("div", { className: "note" }, note));
  for (const [name, value] of D.tiles) { const t = make("div", { className: "tile" }); t.append(make("b", {}, value), make("span", {}, name)); byId("tiles").append(t); }
  byId("config").textContent = JSON.stringify(D.config, null, 1);
}

// --- charts over time: one window for all of them
const charts = [];
function redraw() { for (const c of charts) c(); const w = byId("window"); if (w) w.textContent = `${time(view[0])} to ${time(view[1])}`; }
function chart(id, left, draw, hover) {
  const canvas = byId(id);
  canvas.style.height ||= `${canvas.getAttribute("height")}px`; // else it follows the width, which drawing changes
  const plot = () => ({ x: left, w: canvas.clientWidth - left - 12, h: canvas.clientHeight - 22 });
  const toX = (s, p) => p.x + (s - view[0]) / (view[1] - view[0]) * p.w, toS = (x, p) => view[0] + (x - p.x) / p.w * (view[1] - view[0]);
  charts.push(() => {
    const ratio = devicePixelRatio || 1, p = plot(), c = canvas.getContext("2d");
    canvas.width = canvas.clientWidth * ratio; canvas.height = canvas.clientHeight * ratio; c.scale(ratio, ratio);
    c.clearRect(0, 0, canvas.clientWidth, canvas.clientHeight); c.font = "11px system-ui, sans-serif"; c.textBaseline = "middle";
    c.save(); c.beginPath(); c.rect(p.x, 0, p.w, p.h); c.clip(); draw(c, p, s => toX(s, p)); c.restore();
    axis(c, p, s => toX(s, p)); c.fillStyle = "#1c2733"; c.textAlign = "right"; (draw.labels || (() => {}))(c, p);
  });
  canvas.addEventListener("wheel", e => {
    e.preventDefault(); const p = plot(), at = toS(e.offsetX, p), f = Math.exp(Math.sign(e.deltaY) * 0.25);
    const span = Math.min((view[1] - view[0]) * f, full[1] - full[0]), share = (at - view[0]) / (view[1] - view[0]);
    move(at - share * span, span);
  }, { passive: false });
  let held = null;
  canvas.addEventListener("mousedown", e => { held = [e.offsetX, view[0]]; });
  addEventListener("mouseup", () => { held = null; });
  canvas.addEventListener("mousemove", e => {
    const p = plot();
    if (held && e.buttons) { const span = view[1] - view[0]; move(held[1] - (e.offsetX - held[0]) / p.w * span, span); }
    tip(e, e.offsetX >= p.x && e.offsetY <= p.h ? hover(toS(e.offsetX, p), e.offsetY, p) : "");
  });
  canvas.addEventListener("mouseleave", e => tip(e, ""));
  canvas.addEventListener("dblclick", () => { view = [...full]; redraw(); });
}
function move(from, span) { from = Math.max(full[0], Math.min(from, full[1] - span)); view = [from, from + span]; redraw(); }
function axis(c, p, toX) {
  const raw = (view[1] - view[0]) / 8, power = 10 ** Math.floor(Math.log10(raw)), step = power * [1, 2, 5, 10].find(m => m * power >= raw);
  c.fillStyle = "#5c6a79"; c.strokeStyle = "#d5dae1"; c.textAlign = "center";
  for (let k = Math.ceil(view[0] / step); k * step <= view[1]; k++) { const x = toX(k * step); c.fillRect(x, p.h, 1, 4); c.fillText(time(+(k * step).toPrecision(12)), x, p.h + 12); }
}
function lowest(array, value) { let a = 0, b = array.length; while (a < b) { const m = (a + b) >> 1; if (array[m] < value) a = m + 1; else b = m; } return a; }
function options(id, entries, changed) { const s = byId(id); for (const [value, text] of entries) s.append(make("option", { value }, text)); s.addEventListener("change", changed); }

function timeline() {
  if (!D.gpus.length) { byId("timeline").parentElement.remove(); return; }
  const tick = D.end_s / D.ticks;
  options("stage", [["", "all, compute streams"], ...D.gpus.map((g, i) => [i, `stage ${g.stage} (GPU ${g.gpu}), all streams`])], () => { layout(); redraw(); });
  let lanes = [];
  function layout() {
    const pick = byId("stage").value;
    lanes = pick === "" ? D.gpus.map(g => ({ name: `stage ${g.stage}`, part: g.streams[0], coarse: g.coarse })) : D.gpus[+pick].streams.map(s => ({ name: s.name, part: s }));
    byId("timeline").style.height = Math.max(120, 30 + lanes.length * 34) + "px";
  }
  layout();
  // where single operations are narrower than a pixel, lanes show what Megatron's timers cover
  const part = lane => lane.coarse && (view[1] - view[0]) * lane.part.start.length > 1500 * D.end_s ? lane.coarse : lane.part;
  const draw = (c, p, toX) => {
    const h = p.h / lanes.length, perTick = p.w / ((view[1] - view[0]) / tick);
    lanes.forEach((lane, i) => {
      const q = part(lane), { start, length, category } = q, from = Math.max(0, lowest(start, view[0] / tick) - 1);
      let drawn = -1, colour = -1;
      for (let k = from; k < start.length && start[k] * tick < view[1]; k++) {
        const x = toX(start[k] * tick), w = length[k] * perTick;
        if (x + w < drawn + 0.4 && category[k] === colour) continue;
        c.fillStyle = D.colours[category[k]]; c.fillRect(x, i * h + h * 0.12, Math.max(w - (w > 4 ? 0.5 : 0), 0.4), h * 0.76);
        drawn = x + w; colour = category[k];
        if (w > 60) { c.fillStyle = "#000a"; c.textAlign = "left"; c.save(); c.beginPath(); c.rect(x, i * h, w - 3, h); c.clip(); c.fillText(D.names[q.name_of[k]], Math.max(x, p.x) + 4, i * h + h / 2); c.restore(); }
      }
    });
  };
  draw.labels = (c, p) => lanes.forEach((lane, i) => c.fillText(lane.name, p.x - 6, (i + 0.5) * p.h / lanes.length));
  chart("timeline", 92, draw, (s, y, p) => {
    const lane = lanes[Math.min(lanes.length - 1, Math.floor(y / p.h * lanes.length))], q = part(lane), k = lowest(q.start, s / tick + 1e-9) - 1;
    if (k < 0 || (q.start[k] + q.length[k]) * tick < s) return `${lane.name}\n${time(s)}: idle`;
    const batch = q.microbatch[k] >= 0 ? `\nmicrobatch ${q.microbatch[k]}` : "";
    return `${lane.name}: ${D.names[q.name_of[k]]}\n${D.categories[q.category[k]]}, ${time(q.start[k] * tick)} for ${time(q.length[k] * tick)}${batch}`;
  });
  D.categories.forEach((name, i) => { if (D.seen[i]) legend("legend", name, D.colours[i]); });
}
function legend(id, name, colour) { const e = make("span"); const i = make("i"); i.style.background = colour; e.append(i, name); byId(id).append(e); }

const CIVIDIS = [[0, 34, 78], [18, 53, 112], [59, 73, 108], [87, 93, 109], [112, 113, 115], [138, 134, 120], [165, 156, 116], [195, 179, 105], [225, 204, 85], [254, 232, 56]];
function cividis(v) {
  const x = Math.max(0, Math.min(1, v)) * (CIVIDIS.length - 1), i = Math.min(CIVIDIS.length - 2, Math.floor(x)), f = x - i;
  return `rgb(${CIVIDIS[i].map((a, k) => Math.round(a + f * (CIVIDIS[i + 1][k] - a))).join(",")})`;
}
const PALETTE = Array.from({ length: 256 }, (_, i) => cividis(i / 255));

function heat() {
  const H = D.heat;
  if (!H) { byId("heat").parentElement.remove(); return; }
  const spans = H.edges.length - 1; let shown = [];
  const unique = list => [...new Set(list)];
  const pick = () => {
    shown = H.tier.map((_, g) => g).filter(g => (byId("tier").value === "" || H.tier[g] === byId("tier").value) && (byId("rail").value === "" || H.rail[g] === +byId("rail").value || H.rail[g] < 0));
    byId("heat").dataset.groups = shown.length; byId("heat").style.height = Math.max(90, 24 + shown.length * 16) + "px"; redraw();
  };
  options("tier", [["", "all"], ...unique(H.tier).map(t => [t, t])], pick);
  options("rail", [["", "all"], ...unique(H.rail).filter(r => r >= 0).sort((a, b) => a - b).map(r => [r, `rail ${r}`])], pick);
  byId("measure").addEventListener("change", redraw);
  const draw = (c, p, toX) => {
    const values = H[byId("measure").value], h = p.h / shown.length, from = Math.max(0, lowest(H.edges, view[0]) - 1);
    shown.forEach((g, i) => {
      for (let k = from; k < spans && H.edges[k] < view[1]; k++) { const x = toX(H.edges[k]); c.fillStyle = PALETTE[values[g * spans + k]]; c.fillRect(x, i * h, toX(H.edges[k + 1]) - x + 0.6, h - 1); }
    });
  };
  draw.labels = (c, p) => shown.forEach((g, i) => c.fillText(H.rail[g] < 0 ? H.tier[g] : `${H.tier[g]} rail ${H.rail[g]}`, p.x - 6, (i + 0.5) * p.h / shown.length));
  chart("heat", 92, draw, (s, y, p) => {
    const g = shown[Math.min(shown.length - 1, Math.floor(y / p.h * shown.length))], k = Math.min(spans - 1, Math.max(0, lowest(H.edges, s) - 1));
    return `${H.tier[g]}${H.rail[g] < 0 ? "" : ` rail ${H.rail[g]}`}: ${H.links[g]} links\n${time(H.edges[k])} to ${time(H.edges[k + 1])}\nmean ${percent(H.mean[g * spans + k] / 255)}, highest ${percent(H.highest[g * spans + k] / 255)}`;
  });
  for (const v of [0, 0.25, 0.5, 0.75, 1]) legend("scale", percent(v), cividis(v));
  pick();
}

function shade(i, n) { const v = n > 1 ? i / (n - 1) : 0; return `hsl(${270 - 210 * v} ${60 + 20 * v}% ${32 + 16 * v}%)`; }
function memory() {
  if (!D.memory.length) { byId("memory").parentElement.remove(); return; }
  const most = 1.06 * Math.max(...D.memory.map(m => m.bytes.reduce((a, b) => Math.max(a, b), 0)));
  const draw = (c, p, toX) => D.memory.forEach((m, i) => {
    c.strokeStyle = shade(i, D.memory.length); c.beginPath();
    for (let k = Math.max(0, lowest(m.t, view[0]) - 1); k < m.t.length && m.t[k] <= view[1]; k++) { const y = p.h * (1 - m.bytes[k] / most); c.lineTo(toX(m.t[k]), y); c.lineTo(k + 1 < m.t.length ? toX(m.t[k + 1]) : toX(m.t[k]), y); }
    c.stroke();
  });
  draw.labels = (c, p) => { for (let k = 0; k <= 4; k++) c.fillText(size(most / 1.06 * k / 4), p.x - 6, Math.max(7, p.h * (1 - k / 4 / 1.06))); };
  chart("memory", 92, draw, s => `${time(s)}\n` + D.memory.map(m => `stage ${m.stage}: ${size(m.bytes[Math.max(0, lowest(m.t, s) - 1)])}`).join("\n"));
}

// --- drawings that do not move
function svg(tag, attributes, parent) { const e = document.createElementNS("http://www.w3.org/2000/svg", tag); for (const k in attributes) e.setAttribute(k, attributes[k]); if (parent) parent.append(e); return e; }
function breakdown() {
  const B = D.breakdown, box = byId("breakdown");
  if (!B) { box.parentElement.remove(); return; }
  const w = 640, row = 24, left = 62, most = Math.max(...B.seconds.map(r => r.reduce((a, b) => a + b, 0)));
  const s = svg("svg", { viewBox: `0 0 ${w} ${B.stages.length * row + 20}` }, box);
  B.stages.forEach((stage, i) => {
    svg("text", { x: left - 6, y: i * row + 15, "text-anchor": "end" }, s).textContent = `stage ${stage}`;
    let x = left;
    B.parts.forEach((part, k) => {
      const width = B.seconds[i][k] / most * (w - left - 8); if (width <= 0) return;
      const r = svg("rect", { x, y: i * row + 2, width, height: row - 5, fill: B.colours[k] }, s); x += width;
      r.addEventListener("mousemove", e => tip(e, `stage ${stage}: ${part}\n${time(B.seconds[i][k])} (${percent(B.seconds[i][k] / most)})`)); r.addEventListener("mouseleave", e => tip(e, ""));
    });
  });
  for (let k = 0; k <= 4; k++) svg("text", { x: left + k / 4 * (w - left - 40), y: B.stages.length * row + 14 }, s).textContent = time(most * k / 4 * (w - left - 40) / (w - left - 8));
  const l = make("div", { className: "legend", id: "parts" }); box.append(l);
  B.parts.forEach((part, k) => { if (B.seconds.some(r => r[k] > most * 5e-4)) legend("parts", part, B.colours[k]); });
}
function curve(id, lines, format, log) {
  const box = byId(id), w = 640, h = 260, left = 44, bottom = 22; if (!lines.length) { (id === "queue" ? byId("queues") : box.parentElement).remove(); return; }
  const all = lines.flatMap(l => [...l.x]).filter(x => !log || x > 0), f = log ? Math.log10 : x => x, lo = log ? f(Math.min(...all)) : 0, hi = Math.max(f(Math.max(...all)), lo + 1e-12);
  const X = x => left + (f(Math.max(x, log ? 10 ** lo : x)) - lo) / (hi - lo) * (w - left - 14), Y = y => 6 + (1 - y) * (h - bottom - 8), s = svg("svg", { viewBox: `0 0 ${w} ${h}` }, box);
  for (let k = 0; k <= 4; k++) { svg("line", { x1: left, x2: w - 14, y1: Y(k / 4), y2: Y(k / 4), stroke: "#e4e8ee" }, s); svg("text", { x: left - 6, y: Y(k / 4) + 4, "text-anchor": "end" }, s).textContent = `${25 * k} %`; }
  for (let k = 0; k <= 4; k++) { const v = lo + k / 4 * (hi - lo); svg("text", { x: left + k / 4 * (w - left - 14), y: h - 6, "text-anchor": k ? k === 4 ? "end" : "middle" : "start" }, s).textContent = format(log ? 10 ** v : v); }
  for (const l of lines) {
    let d = `M${X(l.x[0])} ${Y(0)}`; for (let k = 0; k < l.x.length; k++) d += `V${Y(l.y[k]).toFixed(1)}H${X(k + 1 < l.x.length ? l.x[k + 1] : l.x[k]).toFixed(1)}`;
    svg("path", { d, fill: "none", stroke: l.colour, "stroke-width": 1.8 }, s);
  }
  s.addEventListener("mousemove", e => {
    const box = s.getBoundingClientRect(), v = lo + ((e.clientX - box.left) / box.width * w - left) / (w - left - 14) * (hi - lo), x = log ? 10 ** v : v;
    tip(e, `${format(x)}\n` + lines.map(l => { const k = lowest(l.x, x); return `${l.name}: ${percent(k ? l.y[k - 1] : 0)} at or below`; }).join("\n"));
  });
  s.addEventListener("mouseleave", e => tip(e, ""));
  const g = make("div", { className: "legend", id: id + "-legend" }); box.append(g); for (const l of lines) legend(id + "-legend", l.name, l.colour);
}
function curves() { curve("completion", D.completion, time, true); curve("queue", D.queue, size, false); curve("used", D.used, percent, false); }

// --- tables: a click on a heading sorts, another one turns the order
function tables() {
  const kinds = { time, size, percent, count: n => n.toLocaleString("en"), text: t => t };
  for (const t of D.tables) {
    const table = byId(t.id), head = make("tr"), body = make("tbody");
    if (!t.rows.length) { table.parentElement.remove(); continue; }
    const fill = () => { body.textContent = ""; for (const row of t.rows) { const tr = make("tr"); row.forEach((v, i) => tr.append(make("td", { className: t.columns[i][1] }, v === null ? "-" : kinds[t.columns[i][1]](v)))); body.append(tr); } };
    t.columns.forEach(([name, kind], i) => {
      const th = make("th", { className: kind }, name); head.append(th);
      th.addEventListener("click", () => {
        const order = th.dataset.order === "-1" || (kind === "text" && !th.dataset.order) ? 1 : -1; for (const o of head.children) delete o.dataset.order; th.dataset.order = order;
        t.rows.sort((a, b) => order * (typeof a[i] === "string" ? a[i].localeCompare(b[i], "en", { numeric: true }) : (a[i] ?? -Infinity) - (b[i] ?? -Infinity))); fill();
      });
    });
    const top = make("thead"); top.append(head); table.append(top, body); fill();
  }
}
start();

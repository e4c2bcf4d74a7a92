"use strict";
(() => {
  const lanesCanvas = document.getElementById("lanes"), latencyCanvas = document.getElementById("latency");
  const tip = document.getElementById("tip"), detail = document.getElementById("detail");
  const LEFT = 76, AXIS = 22;
  const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  let colors = {};
  const readColors = () => {
    for (const n of ["ink", "dim", "line", "soft", "card", "ok", "read", "refused", "unknown", "event", "watch", "mark", "good"]) colors[n] = css("--" + n);
    for (let i = 0; i < 8; i++) colors["f" + i] = css("--f" + i);
  };
  const faultColor = k => colors["f" + (k % 8)];

  // What is drawn: rows of nodes, then lanes of clients, then of watchers.
  const many = data.lanes.length > 48;
  const rowHeight = 16, laneHeight = many ? 7 : 15;
  const rows = data.nodes.length + (data.leaders.length ? 1 : 0);
  const firstWatch = data.lanes.findIndex(l => l.watch);
  const gap = 10;
  const laneTop = i => AXIS + rows * rowHeight + gap + i * laneHeight + (data.lanes[i] && data.lanes[i].watch && firstWatch > 0 ? gap : 0);
  const height = laneTop(Math.max(0, data.lanes.length - 1)) + laneHeight + 6;
  const nodeTop = i => AXIS + (data.leaders.length ? rowHeight : 0) + i * rowHeight;

  const opsOf = data.lanes.map(() => []), watchesOf = data.lanes.map(() => []);
  data.ops.forEach((o, i) => opsOf[o.l].push(i));
  data.watches.forEach((w, i) => watchesOf[w.l].push(i));
  const concernedOps = new Set(), concernedTimes = [];
  for (const v of data.violations) {
    for (const i of v.ops) concernedOps.add(i);
    for (const t of v.times) concernedTimes.push([v.watch, t]);
  }

  let from = 0, to = data.end, chosen = -1, drag = null, width = 0;
  const x = t => LEFT + (t - from) / (to - from) * (width - LEFT - 8);
  const time = px => from + (px - LEFT) / (width - LEFT - 8) * (to - from);
  const show = ms => {
    const span = to - from;
    if (span > 2000) return (ms / 1000).toFixed(span > 20000 ? 0 : 1) + " s";
    return ms.toFixed(span > 20 ? 0 : span > 1 ? 2 : 3) + " ms";
  };

  function prepare(canvas, h) {
    const dpr = window.devicePixelRatio || 1;
    width = canvas.clientWidth;
    canvas.width = width * dpr;
    canvas.height = h * dpr;
    canvas.style.height = h + "px";
    const g = canvas.getContext("2d");
    g.setTransform(dpr, 0, 0, dpr, 0, 0);
    g.clearRect(0, 0, width, h);
    g.font = "11px system-ui, sans-serif";
    g.textBaseline = "middle";
    return g;
  }

  function ticks() {
    const rough = (to - from) / 9, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map(f => f * power).find(s => s >= rough);
    const all = [];
    for (let t = Math.ceil(from / step) * step; t <= to; t += step) all.push(t);
    return all;
  }

  function grid(g, top, bottom, label) {
    g.strokeStyle = colors.line;
    g.fillStyle = colors.dim;
    g.textAlign = "center";
    for (const t of ticks()) {
      g.beginPath();
      g.moveTo(Math.round(x(t)) + .5, top);
      g.lineTo(Math.round(x(t)) + .5, bottom);
      g.stroke();
      if (label) g.fillText(show(t), x(t), 9);
    }
  }

  // bar draws from one time to another, at least wide enough to be seen.
  function bar(g, a, b, y, h, color, least) {
    const left = Math.max(x(a), LEFT), right = Math.min(x(b), width);
    if (right < LEFT || left > width) return;
    g.fillStyle = color;
    g.fillRect(left, y, Math.max(right - left, least || 1), h);
  }

  function clip(g, h) {
    g.save();
    g.beginPath();
    g.rect(LEFT, 0, width - LEFT, h);
    g.clip();
  }

  function drawFaults(g) {
    for (const f of data.faults) {
      if (f.e < from || f.b > to) continue;
      const color = faultColor(f.k);
      g.globalAlpha = .07;
      bar(g, f.b, f.e, AXIS + rows * rowHeight, height, color);
      g.globalAlpha = f.n < 0 ? .35 : .9;
      if (f.n < 0) {
        bar(g, f.b, f.e, nodeTop(0) + 2, rowHeight * data.nodes.length - 4, color, 2);
      } else {
        bar(g, f.b, f.e, nodeTop(f.n) + 2, rowHeight - 4, color, 2);
      }
      g.globalAlpha = 1;
      const name = data.kinds[f.k];
      if (f.n >= 0 && x(f.e) - Math.max(x(f.b), LEFT) > g.measureText(name).width + 8) {
        g.fillStyle = colors.card;
        g.textAlign = "left";
        g.fillText(name, Math.max(x(f.b), LEFT) + 4, nodeTop(f.n) + rowHeight / 2);
      }
    }
    for (const l of data.leaders) {
      bar(g, l.b, l.e, AXIS + 3, rowHeight - 6, colors.good, 2);
      if (x(l.e) - Math.max(x(l.b), LEFT) > 26) {
        g.fillStyle = colors.card;
        g.textAlign = "left";
        g.fillText(data.nodes[l.n] || "", Math.max(x(l.b), LEFT) + 4, AXIS + rowHeight / 2);
      }
    }
  }

  const opColor = o => o.o === "u" ? colors.unknown : o.o === "r" ? colors.refused : o.w ? colors.ok : colors.read;

  function drawOps(g) {
    for (let l = 0; l < data.lanes.length; l++) {
      const y = laneTop(l);
      for (const i of opsOf[l]) {
        const o = data.ops[i];
        if (o.c > to || (o.r < 0 ? o.c : o.r) < from) continue;
        const h = o.w ? laneHeight - 3 : laneHeight - 7 > 2 ? laneHeight - 7 : 3;
        const top = y + (laneHeight - h) / 2;
        if (o.r < 0) {
          g.fillStyle = colors.unknown;
          g.beginPath();
          g.moveTo(x(o.c), top);
          g.lineTo(x(o.c) + 9, top + h / 2);
          g.lineTo(x(o.c), top + h);
          g.fill();
        } else {
          bar(g, o.c, o.r, top, h, opColor(o), 1.5);
        }
      }
    }
  }

  function drawWatches(g) {
    data.watches.forEach(w => {
      if (w.e < from || w.b > to) return;
      const y = laneTop(w.l);
      bar(g, w.b, w.e, y + 2, laneHeight - 4, colors.watch, 2);
      let last = -9;
      for (const [t, type] of w.v) {
        if (t < from || t > to) continue;
        const px = x(t);
        if (px - last < .7 && type !== "E") continue;
        last = px;
        g.fillStyle = type === "E" ? colors.mark : type === "B" ? colors.dim : colors.event;
        const h = type === "B" ? (laneHeight - 4) / 2 : laneHeight - 4;
        g.fillRect(px - .6, y + 2 + (laneHeight - 4 - h), type === "E" ? 3 : 1.2, h);
      }
    });
  }

  function drawMarks(g) {
    const strong = chosen >= 0 ? new Set(data.violations[chosen].ops) : concernedOps;
    g.strokeStyle = colors.mark;
    g.lineWidth = 2;
    for (const i of strong) {
      const o = data.ops[i], y = laneTop(o.l);
      const right = o.r < 0 ? x(o.c) + 9 : Math.max(x(o.r), x(o.c) + 3);
      if (right < LEFT) continue;
      g.strokeRect(x(o.c) - 1.5, y, right - x(o.c) + 3, laneHeight);
    }
    const times = chosen >= 0 ? data.violations[chosen].times.map(t => [data.violations[chosen].watch, t]) : concernedTimes;
    for (const [w, t] of times) {
      if (w < 0 || !data.watches[w]) continue;
      const y = laneTop(data.watches[w].l);
      g.strokeRect(x(t) - 3, y, 6, laneHeight);
    }
    if (chosen >= 0) {
      g.setLineDash([4, 3]);
      g.beginPath();
      g.moveTo(x(data.violations[chosen].at), AXIS);
      g.lineTo(x(data.violations[chosen].at), height);
      g.stroke();
      g.setLineDash([]);
    }
    g.lineWidth = 1;
  }

  function labels(g) {
    g.textAlign = "right";
    g.fillStyle = colors.dim;
    if (data.leaders.length) g.fillText("leader", LEFT - 8, AXIS + rowHeight / 2);
    g.fillStyle = colors.ink;
    data.nodes.forEach((n, i) => g.fillText(n, LEFT - 8, nodeTop(i) + rowHeight / 2));
    g.fillStyle = colors.dim;
    data.lanes.forEach((l, i) => {
      if (!many) g.fillText(l.name, LEFT - 8, laneTop(i) + laneHeight / 2);
    });
    if (many) {
      g.fillText("clients", LEFT - 8, laneTop(0) + 8);
      if (firstWatch > 0) g.fillText("watchers", LEFT - 8, laneTop(firstWatch) + 8);
    }
  }

  function drawLanes() {
    const g = prepare(lanesCanvas, height);
    grid(g, AXIS - 4, height, true);
    g.strokeStyle = colors.line;
    data.nodes.forEach((n, i) => {
      g.fillStyle = colors.soft;
      g.fillRect(LEFT, nodeTop(i) + 2, width - LEFT - 8, rowHeight - 4);
    });
    labels(g);
    clip(g, height);
    drawFaults(g);
    drawWatches(g);
    drawOps(g);
    drawMarks(g);
    if (drag && drag.moved) {
      g.globalAlpha = .15;
      g.fillStyle = colors.ink;
      g.fillRect(Math.min(drag.x, drag.to), AXIS, Math.abs(drag.to - drag.x), height);
    }
    g.restore();
  }

  const quantile = (all, q) => all[Math.min(all.length - 1, Math.floor(q * all.length))];

  function drawLatency() {
    const h = 190, g = prepare(latencyCanvas, h), top = 8, bottom = h - 8;
    const shown = data.ops.filter(o => o.r >= 0 && o.o === "o" && o.c <= to && o.r >= from);
    let low = Infinity, high = 0;
    for (const o of shown) {
      const d = Math.max(o.r - o.c, .001);
      if (d < low) low = d;
      if (d > high) high = d;
    }
    if (!shown.length) return;
    low = 10 ** Math.floor(Math.log10(low));
    high = Math.max(10 ** Math.ceil(Math.log10(high)), low * 10);
    const y = d => bottom - Math.log(Math.max(d, low) / low) / Math.log(high / low) * (bottom - top);
    grid(g, top, bottom, false);
    g.textAlign = "right";
    for (let d = low; d <= high * 1.01; d *= 10) {
      g.strokeStyle = colors.line;
      g.beginPath();
      g.moveTo(LEFT, y(d));
      g.lineTo(width - 8, y(d));
      g.stroke();
      g.fillStyle = colors.dim;
      g.fillText(d >= 1000 ? d / 1000 + " s" : d >= .95 ? Math.round(d) + " ms" : +(d * 1000).toPrecision(1) + " µs", LEFT - 8, y(d));
    }
    clip(g, h);
    for (const f of data.faults) {
      g.globalAlpha = .08;
      bar(g, f.b, f.e, top, bottom - top, faultColor(f.k));
    }
    const size = shown.length > 3000 ? 2.2 : shown.length > 300 ? 3 : 5;
    g.globalAlpha = shown.length > 5000 ? .35 : .7;
    for (const o of shown) {
      g.fillStyle = o.w ? colors.ok : colors.read;
      g.fillRect(x(o.c) - size / 2, y(o.r - o.c) - size / 2, size, size);
    }
    g.globalAlpha = 1;
    for (const write of [false, true]) {
      const bins = Array.from({length: 80}, () => []);
      for (const o of shown) {
        if (o.w === write) bins[Math.max(0, Math.min(79, Math.floor((o.c - from) / (to - from) * 80)))].push(o.r - o.c);
      }
      for (const q of [.5, .99]) {
        g.strokeStyle = write ? colors.ok : colors.read;
        g.lineWidth = q === .5 ? 2 : 1;
        g.beginPath();
        bins.forEach((b, i) => {
          if (b.length < 3) return;
          b.sort((a, c) => a - c);
          g.lineTo(x(from + (i + .5) / 80 * (to - from)), y(quantile(b, q)));
        });
        g.stroke();
      }
    }
    g.lineWidth = 1;
    g.restore();
  }

  let asked = false;
  function draw() {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      drawLanes();
      drawLatency();
    });
  }

  // under returns the text of what is at a place, nearest first.
  function under(px, py) {
    const t = time(px), slack = (to - from) / (width - LEFT) * 4;
    for (const f of data.faults) {
      const n = Math.max(f.n, 0);
      if (py >= nodeTop(n) && py < nodeTop(n) + rowHeight && t >= f.b - slack && t <= f.e + slack)
        return f.t + (f.n >= 0 ? " of " + data.nodes[f.n] : "") + ", " + f.b + " to " + f.e + " ms";
    }
    const l = data.lanes.findIndex((_, i) => py >= laneTop(i) && py < laneTop(i) + laneHeight);
    if (l < 0) return "";
    let best = "", distance = slack;
    for (const i of opsOf[l]) {
      const o = data.ops[i], end = o.r < 0 ? o.c + slack * 2 : o.r;
      const d = t < o.c ? o.c - t : t > end ? t - end : 0;
      if (d <= distance && (d < distance || !best)) {
        distance = d;
        best = o.t;
      }
    }
    for (const i of watchesOf[l]) {
      const w = data.watches[i];
      if (t < w.b - slack || t > w.e + slack) continue;
      if (!best) best = w.t;
      let near = slack;
      for (const [at, , text] of w.v) {
        if (Math.abs(at - t) < near) {
          near = Math.abs(at - t);
          best = w.t + "\n" + text;
        }
      }
    }
    return best;
  }

  function zoom(a, b) {
    const least = Math.max(data.end / 1e6, .001);
    if (b - a < least) {
      const middle = (a + b) / 2;
      a = middle - least / 2;
      b = middle + least / 2;
    }
    from = Math.max(a, 0);
    to = Math.min(b, data.end);
    if (to <= from) {
      from = 0;
      to = data.end;
    }
    draw();
  }

  const scale = (factor, at) => zoom(at - (at - from) * factor, at + (to - at) * factor);
  const place = e => {
    const r = e.currentTarget.getBoundingClientRect();
    return [e.clientX - r.left, e.clientY - r.top];
  };
  for (const canvas of [lanesCanvas, latencyCanvas]) {
    canvas.addEventListener("pointerdown", e => {
      const [px] = place(e);
      drag = {x: px, to: px, moved: false};
      canvas.setPointerCapture(e.pointerId);
    });
    canvas.addEventListener("pointermove", e => {
      const [px, py] = place(e);
      if (drag) {
        drag.to = px;
        drag.moved = drag.moved || Math.abs(px - drag.x) > 4;
        draw();
      }
      const text = canvas === lanesCanvas && !(drag && drag.moved) ? under(px, py) : "";
      tip.hidden = !text;
      tip.textContent = text;
      tip.style.left = Math.min(e.clientX + 14, window.innerWidth - tip.offsetWidth - 8) + "px";
      tip.style.top = Math.min(e.clientY + 16, window.innerHeight - tip.offsetHeight - 8) + "px";
    });
    canvas.addEventListener("pointerup", e => {
      const [px, py] = place(e), d = drag;
      drag = null;
      if (d && d.moved) {
        zoom(time(Math.min(d.x, px)), time(Math.max(d.x, px)));
      } else if (canvas === lanesCanvas) {
        const text = under(px, py);
        if (text) detail.textContent = text;
        draw();
      }
    });
    canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
    canvas.addEventListener("dblclick", () => zoom(0, data.end));
    canvas.addEventListener("wheel", e => {
      if (!e.ctrlKey && !e.shiftKey) return;
      e.preventDefault();
      scale(e.deltaY + e.deltaX > 0 ? 1.3 : 1 / 1.3, time(place(e)[0]));
    }, {passive: false});
  }
  document.getElementById("in").onclick = () => scale(.5, (from + to) / 2);
  document.getElementById("out").onclick = () => scale(2, (from + to) / 2);
  document.getElementById("all").onclick = () => zoom(0, data.end);

  // A violation shows what it concerns, with some of what was around it.
  const buttons = [...document.querySelectorAll("ol.violations button")];
  function choose(i) {
    chosen = chosen === i ? -1 : i;
    buttons.forEach((b, k) => b.setAttribute("aria-pressed", k === chosen));
    if (chosen < 0) {
      zoom(0, data.end);
      return;
    }
    const v = data.violations[i], texts = [];
    let a = v.at, b = v.at;
    for (const k of v.ops) {
      const o = data.ops[k];
      a = Math.min(a, o.c);
      b = Math.max(b, o.r < 0 ? o.c : o.r);
      texts.push(o.t);
    }
    for (const t of v.times) {
      a = Math.min(a, t);
      b = Math.max(b, t);
    }
    const around = Math.max((b - a) * .6, data.end / 200);
    detail.textContent = texts.join("\n") || buttons[i].querySelector(".text").textContent;
    zoom(a - around, b + around);
  }
  buttons.forEach((b, i) => { b.onclick = () => choose(i); });

  const start = () => {
    readColors();
    drawLanes();
    drawLatency();
    document.documentElement.dataset.drawn = data.ops.length;
  };
  window.addEventListener("resize", draw);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", start);
  start();
  const wanted = /^#v(\d+)$/.exec(location.hash);
  if (wanted && buttons[wanted[1]]) choose(+wanted[1]);
})();

'use strict';
(() => {
  const byId = (id) => document.getElementById(id);
  const data = JSON.parse(byId('data').textContent);
  const colours = bytesOf(data.colours);
  const state = {image: 0, mode: data.modes[0].id, query: 'token', y: 0, x: 0, block: data.start_block, head: -1, probe: null};
  const LARGE = 448; // pixels: smaller images are drawn enlarged by a whole number

  // --- elements ---

  function make(tag, settings = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(settings)) {
      if (name in element && name !== 'list') element[name] = value;
      else element.setAttribute(name, value);
    }
    element.append(...children);
    return element;
  }

  function draw(tag, settings = {}, ...children) {
    const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
    for (const [name, value] of Object.entries(settings)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  }

  function table(headings, rows) {
    const line = (cells, tag) => make('tr', {}, ...cells.map((cell) => make(tag, {}, String(cell))));
    return make('details', {}, make('summary', {}, 'Numbers'), make('div', {className: 'scroll', tabIndex: 0, role: 'region', 'aria-label': 'Numbers'},
      make('table', {}, make('thead', {}, line(headings, 'th')), make('tbody', {}, ...rows.map((row) => line(row, 'td'))))));
  }

  function number(value) {
    if (value === null || value === undefined) return 'none';
    if (value === 0) return '0';
    const size = Math.abs(value);
    return size >= 1000 || size < 1e-4 ? value.toExponential(2) : value.toPrecision(3);
  }

  // Predictions have one entry more than there are models, where the ground truth is known.
  const TRUTH = data.models.length;
  const nameOf = (model) => (model === TRUTH ? 'Ground truth' : data.models[model].name);
  const lower = (text) => text[0].toLowerCase() + text.slice(1);
  const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
  const mod = (value, by) => ((value % by) + by) % by;

  // --- stored maps ---

  function bytesOf(text) {
    const binary = atob(text);
    const bytes = new Uint8Array(binary.length);
    for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
    return bytes;
  }

  const loading = new Map();
  function load(name) {
    if (!loading.has(name)) loading.set(name, inflate(name));
    return loading.get(name);
  }

  async function inflate(name) {
    const stream = new Blob([bytesOf(byId(`tiles:${name}`).textContent)]).stream();
    return new Response(stream.pipeThrough(new DecompressionStream('deflate'))).arrayBuffer();
  }

  /** The tiles of all blocks of one kind. */
  class Tiles {
    constructor(entry, buffer) {
      this.blocks = entry.blocks;
      this.codes = new Uint8Array(buffer, 0, entry.numbers);
      this.numbers = new Float32Array(buffer, entry.numbers);
    }

    geometry(block) {
      const found = this.blocks[block];
      return found ? data.geometries[found[0]] : null;
    }

    /** Values of one query, keys before the grid first; the mean over heads where head is -1. */
    values(block, head, query) {
      const [index, codesAt, numbersAt] = this.blocks[block];
      const {heads, num_queries: queries, num_cells: cells, prefix: [, prefix]} = data.geometries[index];
      const chosen = head < 0 ? [...Array(heads).keys()] : [Math.min(head, heads - 1)];
      const sum = new Float64Array(prefix + cells);
      for (const one of chosen) {
        const tile = one * queries + query;
        const numbers = numbersAt + (2 + prefix) * tile;
        const [low, step] = [this.numbers[numbers], this.numbers[numbers + 1]];
        const start = codesAt + tile * cells;
        for (let i = 0; i < prefix; i++) sum[i] += this.numbers[numbers + 2 + i];
        for (let i = 0; i < cells; i++) sum[prefix + i] += low + this.codes[start + i] * step;
      }
      return chosen.length > 1 ? sum.map((value) => value / chosen.length) : sum;
    }
  }

  const tiles = new Map();
  async function loadTiles(name) {
    if (!tiles.has(name)) {
      const buffer = await load(name);
      tiles.set(name, new Tiles(data.tiles[name], buffer));
    }
    return tiles.get(name);
  }

  const tilesName = (model, kind, image = state.image) => `${model}/${image}/${kind}`;

  // --- tokens on the image ---

  /** Row and column of the token at a pixel. */
  function tokenAt(plane, y, x) {
    return [y, x].map((pixel, axis) =>
      clamp(Math.floor((pixel - plane.start[axis]) / plane.stride[axis]), 0, plane.hw[axis] - 1));
  }

  /** The stored query nearest to a pixel: its index among the tiles, and its row and column. */
  function queryAt(geometry, y, x) {
    if (!geometry.queries) return {index: 0, token: null};
    const {hw} = geometry.queries;
    const [row, column] = tokenAt(geometry.queries, y, x).map((place) => Math.floor(place / geometry.step));
    const token = [row, column].map((cell, axis) => keptToken(geometry, cell, axis));
    return {index: geometry.prefix[0] + row * Math.ceil(hw[1] / geometry.step) + column, token};
  }

  const keptToken = (geometry, cell, axis) =>
    Math.min(cell * geometry.step + Math.floor((geometry.step - 1) / 2), geometry.queries.hw[axis] - 1);

  const centreOf = (plane, token) => token.map((place, axis) => plane.start[axis] + (place + 0.5) * plane.stride[axis]);

  /** Which cell of a tile shows a key; -1 for a key outside of the query's window. */
  function cellOf(geometry, token, key) {
    let [row, column] = key;
    let width = geometry.keys.hw[1];
    if (geometry.window) {
      const places = [0, 1].map((axis) => {
        const [ofQuery, ofKey] = [token, key].map((t) => mod(t[axis] - geometry.shift, geometry.padded[axis]));
        const same = Math.floor(ofQuery / geometry.window) === Math.floor(ofKey / geometry.window);
        return same ? ofKey % geometry.window : -1;
      });
      if (Math.min(...places) < 0) return -1;
      [row, column] = places;
      width = geometry.window;
    }
    const cells = Math.ceil(width / geometry.pool);
    return geometry.prefix[1] + Math.floor(row / geometry.pool) * cells + Math.floor(column / geometry.pool);
  }

  function keyText(geometry, [row, column]) {
    if (geometry.pool === 1) return `row ${row}, column ${column}`;
    return `row ${row}, column ${column} (mean of ${geometry.pool} by ${geometry.pool} keys)`;
  }

  // --- pictures ---

  const pictures = data.images.map(() => null);
  async function loadPicture(index) {
    if (!pictures[index]) {
      const {src, hw} = data.images[index];
      const image = new Image();
      image.src = src;
      await image.decode();
      const scale = Math.max(1, Math.ceil(LARGE / Math.max(...hw)));
      const grey = make('canvas', {width: hw[1], height: hw[0]});
      const context = grey.getContext('2d');
      context.drawImage(image, 0, 0);
      const pixels = context.getImageData(0, 0, hw[1], hw[0]);
      for (let i = 0; i < pixels.data.length; i += 4) {
        const [r, g, b] = pixels.data.subarray(i, i + 3);
        pixels.data.fill(0.3 * r + 0.59 * g + 0.11 * b, i, i + 3);
      }
      context.putImageData(pixels, 0, 0);
      pictures[index] = {image, grey, scale, hw};
    }
    return pictures[index];
  }

  function fit(canvas, picture) {
    canvas.width = picture.hw[1] * picture.scale;
    canvas.height = picture.hw[0] * picture.scale;
    canvas.classList.toggle('pixelated', picture.scale > 4);
    const context = canvas.getContext('2d');
    context.imageSmoothingEnabled = false;
    return context;
  }

  /** Outlines a token, light inside dark, so that it shows on every colour. */
  function outline(context, scale, plane, token, colour) {
    const [y, x] = token.map((place, axis) => (plane.start[axis] + place * plane.stride[axis]) * scale);
    const [height, width] = plane.stride.map((side) => side * scale);
    for (const [style, line] of [['#000', 4], [colour, 2]]) {
      context.strokeStyle = style;
      context.lineWidth = line;
      context.strokeRect(x, y, width, height);
    }
  }

  function paintBar(canvas) {
    canvas.width = 256;
    canvas.height = 1;
    const pixels = new ImageData(256, 1);
    for (let i = 0; i < 256; i++) setColour(pixels.data, i, i);
    canvas.getContext('2d').putImageData(pixels, 0, 0);
  }

  function setColour(pixels, at, index) {
    pixels.set(colours.subarray(3 * index, 3 * index + 3), 4 * at);
    pixels[4 * at + 3] = 255;
  }

  const colourIndex = (value, low, high) => (high > low ? Math.round(255 * clamp((value - low) / (high - low), 0, 1)) : 0);

  // --- panels ---

  let panels = [];
  const picker = make('canvas', {
    className: 'view pick', tabIndex: 0, role: 'application', 'aria-roledescription': 'token picker',
    'aria-describedby': 'help',
  });
  const pickerFigure = make('figure', {},
    make('figcaption', {}, make('b', {}, 'Token'), make('span', {}, 'click, or arrow keys')), picker);

  const KINDS = Object.fromEntries(data.modes.map((mode) => [mode.id, mode.kinds]));

  /** One panel for each model and kind of map that the mode shows. */
  function buildPanels() {
    panels = data.models.flatMap((_, model) => KINDS[state.mode]
      .filter((kind) => ['prediction', 'gradcam', 'edits'].includes(kind) || data.tiles[tilesName(model, kind)])
      .map((kind) => (kind === 'edits' ? newEditPanel(model) : newPanel(model, kind))));
    if (state.mode === 'prediction' && data.predictions[TRUTH]) panels.push(newPanel(TRUTH, 'prediction'));
    byId('panels').replaceChildren(pickerFigure, ...panels.map((panel) => panel.figure));
  }

  const kindOf = (model, kind) => (model === TRUTH ? 'from the data of the config' : data.kinds[kind]);

  function newPanel(model, kind) {
    const canvas = make('canvas', {
      className: 'view', tabIndex: 0, role: 'img', 'data-model': model === TRUTH ? 'truth' : data.models[model].role, 'data-kind': kind,
    });
    const [low, high, bar] = [make('span'), make('span'), make('canvas', {'aria-hidden': 'true'})];
    paintBar(bar);
    const scale = make('div', {className: 'scale', hidden: kind === 'prediction'}, low, bar, high);
    const caption = make('div', {className: 'caption'});
    const heading = make('figcaption', {}, make('b', {}, nameOf(model)), make('span', {}, kindOf(model, kind)));
    const panel = {model, kind, canvas, low, high, caption, figure: make('figure', {}, heading, canvas, scale, caption)};
    canvas.addEventListener('pointermove', (event) => probeAt(pixelOf(event, canvas), false));
    canvas.addEventListener('pointerdown', (event) => probeAt(pixelOf(event, canvas), true));
    canvas.addEventListener('pointerleave', () => probeAt(null, false));
    canvas.addEventListener('keydown', (event) => moveProbe(event, panel));
    return panel;
  }

  // --- models without a head ---

  const EDIT_CELL = 44, EDIT_MARGIN = 30; // pixels

  /** A panel with a cell for each block and head. */
  function newEditPanel(model) {
    const canvas = make('canvas', {
      className: 'view pick', tabIndex: 0, role: 'application', 'aria-roledescription': 'head picker',
      'data-model': data.models[model].role, 'data-kind': 'edits',
    });
    const [low, high, bar] = [make('span', {}, '0'), make('span'), make('canvas', {'aria-hidden': 'true'})];
    paintBar(bar);
    const caption = make('div', {className: 'caption'});
    const heading = make('figcaption', {}, make('b', {}, nameOf(model)), make('span', {}, data.kinds.edits));
    const scale = make('div', {className: 'scale'}, low, bar, high);
    canvas.addEventListener('click', (event) => {
      const [y, x] = pixelOf(event, canvas, [canvas.height, canvas.width])
        .map((pixel) => Math.floor((pixel - EDIT_MARGIN) / EDIT_CELL));
      pickHead(model, y, x);
    });
    canvas.addEventListener('keydown', (event) => {
      const move = MOVES[event.key];
      if (!move) return;
      event.preventDefault();
      pickHead(model, state.block + move[0], Math.max(state.head, 0) + (state.head < 0 ? 0 : move[1]));
    });
    return {model, kind: 'edits', canvas, high, caption, figure: make('figure', {}, heading, canvas, scale, caption)};
  }

  const editsOf = (panel) => data.edits[panel.model][state.image] ?? [];
  const editAt = (panel) => editsOf(panel)[state.block]?.[state.head];

  function pickHead(model, block, head) {
    const heads = (data.edits[model][state.image] ?? [])[block];
    if (!heads || head < 0 || head >= heads.length) return;
    [state.block, state.head] = [block, head];
    repaint();
  }

  /** Colours are the change of the last features; blocks go down, heads to the right. */
  function paintEdits(panel, most) {
    const blocks = editsOf(panel);
    const heads = Math.max(1, ...blocks.map((found) => found?.length ?? 0));
    panel.canvas.width = EDIT_MARGIN + heads * EDIT_CELL;
    panel.canvas.height = EDIT_MARGIN + blocks.length * EDIT_CELL;
    const context = panel.canvas.getContext('2d');
    context.fillStyle = getComputedStyle(document.body).color;
    context.font = '13px system-ui, sans-serif';
    context.textAlign = 'center';
    const middle = (index) => EDIT_MARGIN + (index + 0.5) * EDIT_CELL;
    blocks.forEach((_, block) => context.fillText(block, EDIT_MARGIN / 2, middle(block) + 4));
    for (let head = 0; head < heads; head++) context.fillText(head, middle(head), EDIT_MARGIN / 2 + 4);
    blocks.forEach((found, block) => (found ?? []).forEach(({features: [change]}, head) => {
      const index = colourIndex(change, 0, most);
      context.fillStyle = `rgb(${colours.subarray(3 * index, 3 * index + 3).join()})`;
      context.fillRect(EDIT_MARGIN + head * EDIT_CELL, EDIT_MARGIN + block * EDIT_CELL, EDIT_CELL - 2, EDIT_CELL - 2);
    }));
    if (editAt(panel)) {
      const cell = {stride: [EDIT_CELL, EDIT_CELL], start: [EDIT_MARGIN - 1, EDIT_MARGIN - 1]};
      outline(context, 1, cell, [state.block, state.head], '#fff');
    }
    panel.high.textContent = number(most);
    panel.caption.textContent = editText(panel);
    panel.canvas.setAttribute('aria-label', `${nameOf(panel.model)}, ${blocks.length} blocks by ${heads} heads. ${editText(panel)}`);
  }

  function editText(panel) {
    const found = editAt(panel);
    if (!found) return state.head < 0 ? 'Choose a head: click a cell, use the arrow keys or the sliders.' : 'This block has no such head.';
    const [features, score] = [found.features, found.score].map((pair) => pair.map(number));
    const fall = found.score[0] === null ? '' : ` Fall of the score: ${score[0]} (random change as large: ${score[1]}).`;
    return `Without head ${state.head} of block ${state.block}: ${found.words}.${fall} `
      + `The last features change by ${features[0]} of their norm (random: ${features[1]}).`;
  }

  const mostEdited = () => Math.max(0, ...panels.flatMap((panel) =>
    editsOf(panel).flatMap((found) => (found ?? []).map(({features}) => features[0]))));

  /** What a panel shows now: values, geometry and query; null where the block has no such map. */
  function shown(panel) {
    const of = tiles.get(tilesName(panel.model, panel.kind));
    const geometry = of && state.block < of.blocks.length ? of.geometry(state.block) : null;
    if (!geometry) return null;
    const isClass = state.query === 'class' && geometry.queries && geometry.prefix[0] > 0;
    const query = isClass ? {index: 0, token: null} : queryAt(geometry, state.y, state.x);
    const values = of.values(state.block, geometry.heads > 1 ? state.head : -1, query.index);
    const onGrid = values.subarray(geometry.prefix[1]);
    let [low, high, best] = [Infinity, -Infinity, 0];
    onGrid.forEach((value, cell) => {
      low = Math.min(low, value);
      if (value > high) [high, best] = [value, cell];
    });
    return {geometry, query, values, low: Math.min(0, low), high, best};
  }

  /** The key in the middle of a cell. */
  function keyOfCell(geometry, token, cell) {
    const {hw} = geometry.keys;
    for (let row = 0; row < hw[0]; row++) {
      for (let column = 0; column < hw[1]; column++) {
        if (cellOf(geometry, token, [row, column]) === cell + geometry.prefix[1]) return [row, column];
      }
    }
    return null;
  }

  function paint(panel, view, low, high) {
    const picture = pictures[state.image];
    const context = fit(panel.canvas, picture);
    const {width, height} = panel.canvas;
    context.drawImage(picture.grey, 0, 0, width, height);
    panel.view = view;
    panel.low.textContent = view ? number(low) : '';
    panel.high.textContent = view ? number(high) : '';
    panel.caption.textContent = captionOf(panel, view);
    if (!view) return;
    const {geometry, query, values} = view;
    const [rows, columns] = geometry.keys.hw;
    const pixels = new ImageData(columns, rows);
    for (let row = 0; row < rows; row++) {
      for (let column = 0; column < columns; column++) {
        const cell = cellOf(geometry, query.token, [row, column]);
        if (cell >= 0) setColour(pixels.data, row * columns + column, colourIndex(values[cell], low, high));
      }
    }
    const map = make('canvas', {width: columns, height: rows});
    map.getContext('2d').putImageData(pixels, 0, 0);
    const {start, stride, hw} = geometry.keys;
    context.globalAlpha = byId('cover').valueAsNumber / 100;
    context.drawImage(map, start[1] * picture.scale, start[0] * picture.scale,
      stride[1] * hw[1] * picture.scale, stride[0] * hw[0] * picture.scale);
    context.globalAlpha = 1;
    if (query.token) outline(context, picture.scale, geometry.queries, query.token, '#fff');
    if (state.probe) outline(context, picture.scale, geometry.keys, tokenAt(geometry.keys, ...state.probe), '#ff9d00');
    panel.canvas.setAttribute('aria-label', `${nameOf(panel.model)}, ${data.kinds[panel.kind]}: ${highest(view)}`);
  }

  function captionOf(panel, view) {
    if (panel.kind !== 'gradcam') return view ? prefixText(panel, view) : 'This block has no such map.';
    const text = data.cams[panel.model][state.image];
    return view || !data.tiles[tilesName(panel.model, 'gradcam')] ? text : `${text} It does not depend on the patch tokens of this block.`;
  }

  function prefixText(panel, {geometry, values}) {
    const names = data.models[panel.model].prefix;
    return names.slice(0, geometry.prefix[1]).map((name, i) => `to the ${name}: ${number(values[i])}`).join(', ');
  }

  function highest({geometry, query, high, best}) {
    const key = keyOfCell(geometry, query.token, best);
    return key ? `highest ${number(high)} at ${keyText(geometry, key)}` : `highest ${number(high)}, in the padding`;
  }

  function paintPicker() {
    const picture = pictures[state.image];
    const context = fit(picker, picture);
    context.imageSmoothingEnabled = picture.scale <= 4;
    context.drawImage(picture.image, 0, 0, picker.width, picker.height);
    const geometry = leadGeometry();
    if (!geometry || state.query !== 'token') return;
    const {queries} = geometry;
    if (Math.min(...queries.stride) * picture.scale >= 7) paintGrid(context, picture, queries);
    outline(context, picture.scale, queries, queryAt(geometry, state.y, state.x).token, '#fff');
  }

  function paintGrid(context, {scale, hw}, {start, stride}) {
    context.strokeStyle = 'rgba(255, 255, 255, 0.25)';
    context.lineWidth = 1;
    context.beginPath();
    for (let y = start[0]; y <= hw[0]; y += stride[0]) {
      context.moveTo(0, y * scale);
      context.lineTo(hw[1] * scale, y * scale);
    }
    for (let x = start[1]; x <= hw[1]; x += stride[1]) {
      context.moveTo(x * scale, 0);
      context.lineTo(x * scale, hw[0] * scale);
    }
    context.stroke();
  }

  /** The geometry of the last model's attention, whose queries the picker offers. */
  function leadGeometry() {
    for (const kind of ['probs', 'maps', 'rollout']) {
      const of = tiles.get(tilesName(data.models.length - 1, kind));
      const geometry = of && state.block < of.blocks.length && of.geometry(state.block);
      if (geometry) return geometry;
    }
    return null;
  }

  // --- predictions ---

  /** What a panel shows; a text alone for an image of which there is no ground truth. */
  const predictionOf = (panel) => data.predictions[panel.model][state.image] ?? {text: 'not in the data of the config'};

  function paintPrediction(panel) {
    const picture = pictures[state.image];
    const context = fit(panel.canvas, picture);
    const prediction = predictionOf(panel);
    context.drawImage(prediction.labels ? picture.grey : picture.image, 0, 0, panel.canvas.width, panel.canvas.height);
    if (prediction.labels) paintLabels(context, picture, prediction);
    for (const box of prediction.boxes ?? []) paintBox(context, picture.scale, box);
    panel.caption.replaceChildren(make('p', {}, prediction.text), keysOf(prediction));
    panel.canvas.setAttribute('aria-label', `${nameOf(panel.model)}, ${kindOf(panel.model, panel.kind)}: ${prediction.text}`);
  }

  function paintLabels(context, {scale, hw}, prediction) {
    const labels = new Uint8Array(tiles.get(prediction.labels));
    const pixels = new ImageData(hw[1], hw[0]);
    labels.forEach((label, at) => {
      const colour = prediction.colours[label];
      if (colour) pixels.data.set([...colour, 255], 4 * at);
    });
    const map = make('canvas', {width: hw[1], height: hw[0]});
    map.getContext('2d').putImageData(pixels, 0, 0);
    context.globalAlpha = byId('cover').valueAsNumber / 100;
    context.drawImage(map, 0, 0, hw[1] * scale, hw[0] * scale);
    context.globalAlpha = 1;
  }

  function paintBox(context, scale, {box, colour, text}) {
    const [left, top, right, bottom] = box.map((side) => side * scale);
    const style = `rgb(${colour})`;
    for (const [stroke, line] of [['#000', 4], [style, 2]]) {
      context.strokeStyle = stroke;
      context.lineWidth = line;
      context.strokeRect(left, top, right - left, bottom - top);
    }
    context.font = '600 15px system-ui, sans-serif';
    const width = context.measureText(text).width + 8;
    const y = top >= 20 ? top - 20 : top;
    context.fillStyle = style;
    context.fillRect(left - 1, y, width, 20);
    context.fillStyle = 0.3 * colour[0] + 0.59 * colour[1] + 0.11 * colour[2] > 140 ? '#000' : '#fff';
    context.fillText(text, left + 3, y + 15);
  }

  function keysOf(prediction) {
    return make('ul', {className: 'keys'}, ...(prediction.keys ?? []).map(({name, colour}) => {
      const swatch = make('canvas', {width: 1, height: 1, 'aria-hidden': 'true'});
      const context = swatch.getContext('2d');
      context.fillStyle = `rgb(${colour})`;
      context.fillRect(0, 0, 1, 1);
      return make('li', {}, swatch, name);
    }));
  }

  // --- what is said ---

  function describe() {
    const views = panels.filter((panel) => panel.view);
    if (state.mode === 'prediction') {
      return panels.map((panel) => `${nameOf(panel.model)}: ${predictionOf(panel).text}.`).join(' ');
    }
    if (state.mode === 'edits') return panels.map((panel) => `${nameOf(panel.model)}: ${editText(panel)}`).join(' ');
    const withHeads = views.some(({view}) => view.geometry.heads > 1);
    const parts = [
      queryText(), `block ${state.block}`,
      ...(withHeads ? [state.head < 0 ? 'mean of heads' : `head ${state.head}`] : []),
    ];
    const values = views.map((panel) => `${labelOf(panel)}: ${highest(panel.view)}.`);
    const where = parts.filter(Boolean).join('; ');
    return `${where[0].toUpperCase()}${where.slice(1)}. ${values.join(' ') || 'This block has no such map.'}`;
  }

  function queryText() {
    const of = panels.find(({view}) => view?.geometry.queries)?.view;
    if (!of) return '';
    if (!of.query.token) return 'Class token';
    const [rows, columns] = of.geometry.queries.hw;
    return `Token at row ${of.query.token[0]}, column ${of.query.token[1]} of ${rows} by ${columns}`;
  }

  function labelOf(panel) {
    const several = panels.filter((other) => other.model === panel.model).length > 1;
    return several ? `${nameOf(panel.model)}, ${data.kinds[panel.kind]}` : nameOf(panel.model);
  }

  function probeText() {
    const views = panels.filter((panel) => panel.view);
    if (!state.probe || !views.length) return '\u00a0';
    const {geometry} = views[0].view;
    const values = views.map((panel) => {
      const {geometry: own, query, values: found} = panel.view;
      const cell = cellOf(own, query.token, tokenAt(own.keys, ...state.probe));
      return `${labelOf(panel)}: ${cell < 0 ? "outside of the token's window" : number(found[cell])}`;
    });
    return `Value at ${keyText(geometry, tokenAt(geometry.keys, ...state.probe))}: ${values.join('; ')}.`;
  }

  // --- changes ---

  let saying = 0;
  function say(text) {
    clearTimeout(saying);
    saying = setTimeout(() => { byId('readout').textContent = text; }, 60);
  }

  function repaint(announce = true) {
    const blocks = data.models.map((_, model) => headsAt(model));
    const heads = Math.max(...blocks, 1);
    const slider = byId('head');
    slider.max = heads - 1;
    state.head = Math.min(state.head, heads - 1);
    slider.valueAsNumber = state.head;
    byId('block').valueAsNumber = state.block;
    showValue('block', `${state.block} (0–${data.num_blocks - 1})`, `block ${state.block}`);
    showValue('head', state.head < 0 ? 'mean' : `${state.head} (0–${heads - 1})`,
      state.head < 0 ? 'mean of heads' : `head ${state.head}`);
    showValue('cover', `${byId('cover').value} %`, `${byId('cover').value} percent`);
    paintPicker();
    if (state.mode === 'prediction') {
      panels.forEach(paintPrediction);
    } else if (state.mode === 'edits') {
      panels.forEach((panel) => paintEdits(panel, mostEdited()));
    } else {
      const views = panels.map(shown);
      const present = views.filter(Boolean);
      const common = [Math.min(...present.map((view) => view.low)), Math.max(...present.map((view) => view.high))];
      panels.forEach((panel, i) => {
        const own = views[i] && [views[i].low, views[i].high];
        paint(panel, views[i], ...(byId('shared').checked ? common : own ?? common));
      });
    }
    const text = describe();
    picker.setAttribute('aria-label', `${data.images[state.image].name}. ${queryText()}`);
    byId('probe').textContent = probeText();
    markBlock();
    if (announce) say(text);
  }

  function showValue(id, text, spoken) {
    byId(`${id}-value`).textContent = text;
    byId(id).setAttribute('aria-valuetext', spoken);
  }

  function headsAt(model) {
    if (state.mode === 'edits') return Math.max(1, (data.edits[model][state.image] ?? [])[state.block]?.length ?? 1);
    const found = KINDS[state.mode].map((kind) => tiles.get(tilesName(model, kind))).filter((of) => of instanceof Tiles);
    return Math.max(1, ...found.map((of) => (state.block < of.blocks.length && of.geometry(state.block)?.heads) || 1));
  }

  /** Loads what an image and mode need, then shows it. */
  async function show() {
    buildPanels();
    const wanted = data.models.flatMap((_, model) => [...KINDS[state.mode], 'probs', 'maps', 'rollout']
      .map((kind) => tilesName(model, kind)).filter((name) => data.tiles[name]));
    const labels = data.predictions.map((of) => of[state.image]?.labels).filter(Boolean);
    const {image, mode} = state;
    await Promise.all([loadPicture(image), ...wanted.map(loadTiles), ...labels.map(async (name) => {
      tiles.set(name, await load(name));
    })]);
    if (image === state.image && mode === state.mode) repaint();
  }

  function pixelOf(event, canvas, hw = data.images[state.image].hw) {
    const box = canvas.getBoundingClientRect();
    // The picture lies at the top left of its box and keeps its shape.
    const scale = Math.min(box.width / hw[1], box.height / hw[0]);
    return [(event.clientY - box.top) / scale, (event.clientX - box.left) / scale]
      .map((pixel, axis) => clamp(pixel, 0, hw[axis] - 1e-6));
  }

  const MOVES = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]};

  function pick(pixel) {
    [state.y, state.x] = pixel;
    if (state.query !== 'token') choose('queries', 'token');
    else repaint();
  }

  function movePick(event) {
    const geometry = leadGeometry();
    const pages = {PageUp: -1, PageDown: 1}[event.key];
    if (pages) {
      event.preventDefault();
      state.block = clamp(state.block + pages, 0, data.num_blocks - 1);
      repaint();
      return;
    }
    const move = MOVES[event.key];
    if (!move || !geometry) return;
    event.preventDefault();
    const {queries, step} = geometry;
    const cells = tokenAt(queries, state.y, state.x).map((place, axis) =>
      clamp(Math.floor(place / step) + move[axis], 0, Math.ceil(queries.hw[axis] / step) - 1));
    pick(centreOf(queries, cells.map((cell, axis) => keptToken(geometry, cell, axis))));
  }

  function probeAt(pixel, announce) {
    state.probe = pixel;
    repaint(false);
    if (announce) say(probeText());
  }

  function moveProbe(event, panel) {
    const move = MOVES[event.key];
    if (!move || !panel.view) return;
    event.preventDefault();
    const {keys, pool} = panel.view.geometry;
    const from = tokenAt(keys, ...(state.probe ?? [state.y, state.x]));
    const to = from.map((place, axis) => clamp(place + move[axis] * pool, 0, keys.hw[axis] - 1));
    probeAt(centreOf(keys, to), true);
  }

  // --- controls ---

  function choices(id, options, onChoice) {
    const group = byId(id);
    for (const {value, label, reason, picture} of options) {
      const input = make('input', {type: 'radio', name: id, value, disabled: Boolean(reason)});
      const face = make('span', {}, picture ? make('img', {src: picture, alt: label}) : label);
      if (reason) input.setAttribute('aria-description', reason);
      input.addEventListener('change', () => onChoice(value));
      group.append(make('label', {className: picture ? 'choice picture' : 'choice', title: reason || label}, input, face));
    }
    const first = group.querySelector('input:not(:disabled)');
    if (first) first.checked = true;
    const reasons = options.filter(({reason}) => reason).map(({label, reason}) => `${label}: ${reason}.`);
    return reasons;
  }

  function choose(group, value) {
    const input = byId(group).querySelector(`input[value="${value}"]`);
    input.checked = true;
    input.dispatchEvent(new Event('change'));
  }

  function buildControls() {
    choices('images', data.images.map(({name, src}, value) => ({value, label: name, picture: src})), (value) => {
      state.image = Number(value);
      show();
    });
    const reasons = [
      ...choices('modes', data.modes.map(({id, title, reason}) => ({value: id, label: title, reason})), (value) => {
        state.mode = value;
        show();
      }),
      ...choices('queries', data.queries.map(({id, title, reason}) => ({value: id, label: title, reason})), (value) => {
        state.query = value;
        repaint();
      }),
    ];
    byId('reasons').textContent = reasons.join(' ');
    byId('block').max = data.num_blocks - 1;
    byId('block').addEventListener('input', () => { state.block = byId('block').valueAsNumber; repaint(); });
    byId('head').addEventListener('input', () => { state.head = byId('head').valueAsNumber; repaint(); });
    byId('cover').addEventListener('input', () => repaint(false));
    byId('shared').addEventListener('change', () => repaint());
    picker.addEventListener('click', (event) => pick(pixelOf(event, picker)));
    picker.addEventListener('keydown', movePick);
  }

  // --- charts ---

  const CHART = {width: 310, height: 190, left: 42, right: 6, top: 8, bottom: 34};

  /** Round numbers from low to high. */
  function ticks(low, high, about = 4) {
    const rough = (high - low) / about || 1;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
    const found = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) found.push(i * step);
    return found;
  }

  /** A chart over the blocks. series: [{role, dots: [[block, value, text]], line: [[block, value]], band: [[block, low, high]]}] */
  function chart({title, unit, series, bound, note, fromZero = true, rows, headings}) {
    const values = series.flatMap(({dots = [], line = [], band = []}) =>
      [...dots.map((dot) => dot[1]), ...line.map((point) => point[1]), ...band.flatMap((b) => [b[1], b[2]])])
      .filter((value) => value !== null);
    let [low, high] = [Math.min(...values, ...(fromZero ? [0] : [])), Math.max(...values)];
    if (bound && bound < 1.6 * high) high = Math.max(high, bound);
    if (!(high > low)) [low, high] = [low - 0.5, low + 0.5];
    [low, high] = [low - (low < 0 || !fromZero ? 0.04 : 0) * (high - low), high + 0.04 * (high - low)];
    const {width, height, left, right, top, bottom} = CHART;
    const slot = (width - left - right) / data.num_blocks;
    const x = (block) => left + (block + 0.5) * slot;
    const y = (value) => top + (height - top - bottom) * (1 - (value - low) / (high - low));
    const every = Math.ceil(data.num_blocks / 12);
    const picture = draw('svg', {viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': summary(title, unit, series)},
      draw('rect', {class: 'now', y: top, width: slot, height: height - top - bottom, 'data-left': left, 'data-slot': slot}),
      ...ticks(low, high).flatMap((tick) => [
        draw('line', {class: 'grid', x1: left, x2: width - right, y1: y(tick), y2: y(tick)}),
        draw('text', {x: left - 6, y: y(tick) + 4, 'text-anchor': 'end'}, String(Number(tick.toPrecision(3)))),
      ]),
      ...[...Array(data.num_blocks).keys()].filter((block) => block % every === 0).map((block) =>
        draw('text', {x: x(block), y: height - bottom + 15, 'text-anchor': 'middle'}, String(block))),
      draw('text', {x: (left + width - right) / 2, y: height - 3, 'text-anchor': 'middle'}, 'block'));
    if (bound && bound <= high * 1.0001) {
      picture.append(draw('line', {class: 'bound', x1: left, x2: width - right, y1: y(bound), y2: y(bound)}));
    }
    series.forEach(({role, dots = [], line = [], band = []}, i) => {
      const shift = series.length > 1 ? (i - 0.5) * Math.min(slot * 0.3, 8) : 0;
      const group = draw('g', {class: role});
      const edge = (side) => band.map((point) => `${x(point[0])},${y(point[side])}`);
      if (band.length) group.append(draw('polygon', {class: 'band', points: [...edge(1), ...edge(2).reverse()].join(' ')}));
      if (line.length) {
        group.append(draw('polyline', {class: 'line', points: line.map(([block, value]) => `${x(block)},${y(value)}`).join(' ')}));
      }
      for (const [block, value, text] of dots) {
        group.append(draw('circle', {class: 'dot', cx: x(block) + shift, cy: y(value), r: 3}, draw('title', {}, text)));
      }
      picture.append(group);
    });
    return make('div', {}, make('h3', {}, unit ? `${title} (${unit})` : title), picture,
      ...(note ? [make('p', {className: 'caption'}, note)] : []), table(headings, rows));
  }

  function summary(title, unit, series) {
    const lines = series.map(({name, line = []}) => {
      const found = line.map((point) => point[1]).filter((value) => value !== null);
      return found.length ? `${name}: mean of block ${line[0][0]} ${number(found[0])}, of block ${line.at(-1)[0]} ${number(found.at(-1))}` : '';
    });
    return `${title}${unit ? ` in ${unit}` : ''} by block. ${lines.filter(Boolean).join('; ')}`;
  }

  const legend = () => (data.models.length < 2 ? [] : [make('p', {className: 'legend'}, ...data.models.map(({role, name}) =>
    make('span', {className: role}, make('i'), name)))]);

  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

  function measureChart({title, unit, bound, note, values}) {
    const series = values.map((blocks, model) => {
      const present = blocks.map((heads, block) => [block, heads]).filter(([, heads]) => heads);
      return {
        role: data.models[model].role, name: nameOf(model),
        dots: present.flatMap(([block, heads]) => heads.map((value, head) =>
          [block, value, `${nameOf(model)}, block ${block}, head ${head}: ${number(value)}`])),
        line: present.map(([block, heads]) => [block, mean(heads)]),
      };
    });
    const rows = values.flatMap((blocks, model) => blocks.map((heads, block) =>
      [nameOf(model), block, ...(heads ? [number(mean(heads)), heads.map(number).join(', ')] : ['none', ''])]));
    return chart({title, unit, series, bound, note, rows, headings: ['model', 'block', 'mean', 'by head']});
  }

  function normChart({title, unit, note, values}) {
    const series = values.map((blocks, model) => ({
      role: data.models[model].role, name: nameOf(model),
      band: blocks.map(({low, high}, block) => [block, low, high]),
      line: blocks.map(({median}, block) => [block, median]),
    }));
    const rows = values.flatMap((blocks, model) => blocks.map((norm, block) =>
      [nameOf(model), block, number(norm.low), number(norm.median), number(norm.high), norm.outliers]));
    return chart({title, unit, series, note, rows, headings: ['model', 'block', 'least', 'median', 'most', 'outliers']});
  }

  function learnedChart({name, models}) {
    const series = models.filter(({blocks}) => blocks.length).map(({model, blocks}) => ({
      role: data.models[model].role, name: nameOf(model),
      band: blocks.map(({block, low, high}) => [block, low, high]),
      line: blocks.map(({block, mean: value}) => [block, value]),
      dots: blocks.map(({block, mean: value}) => [block, value, `block ${block}: ${number(value)}`]),
    }));
    const rows = models.flatMap(({model, blocks, whole}) => [...(whole ? [{block: 'all', ...whole}] : []), ...blocks]
      .map((value) => [nameOf(model), value.block, number(value.mean), number(value.low), number(value.high), value.count]));
    const headings = ['model', 'block', 'mean', 'least', 'most', 'numbers'];
    if (series.length) return chart({title: name, series, rows, headings, fromZero: false});
    const whole = models.map(({model, whole: value}) => `${nameOf(model)}: ${number(value.mean)} (one value for all blocks)`);
    return make('div', {}, make('h3', {}, name), make('p', {}, whole.join('; ')), table(headings, rows));
  }

  function ckaChart({title, rows: [rowName, numRows], columns: [columnName, numColumns], values}) {
    const canvas = make('canvas', {
      className: 'view pixelated', width: numColumns, height: numRows, tabIndex: 0, role: 'img',
      'aria-label': `CKA of ${lower(rowName)} and ${lower(columnName)}, ${numRows} by ${numColumns} blocks; the numbers are in the table below`,
    });
    const pixels = new ImageData(numColumns, numRows);
    // Block 0 at the bottom, as the papers draw it.
    const at = (row, column) => (numRows - 1 - row) * numColumns + column;
    values.forEach((line, row) => line.forEach((value, column) => {
      if (value !== null) setColour(pixels.data, at(row, column), colourIndex(value, 0, 1));
    }));
    canvas.getContext('2d').putImageData(pixels, 0, 0);
    const said = make('p', {className: 'caption'}, `up: block of ${lower(rowName)}; right: block of ${lower(columnName)}`);
    canvas.addEventListener('pointermove', (event) => {
      const box = canvas.getBoundingClientRect();
      const row = numRows - 1 - clamp(Math.floor((event.clientY - box.top) / box.height * numRows), 0, numRows - 1);
      const column = clamp(Math.floor((event.clientX - box.left) / box.width * numColumns), 0, numColumns - 1);
      said.textContent = `block ${row} of ${lower(rowName)}, block ${column} of ${lower(columnName)}: ${number(values[row][column])}`;
    });
    const headings = ['block', ...[...Array(numColumns).keys()]];
    return make('div', {}, make('h3', {}, title), canvas, scaleBar('0', '1'), said,
      table(headings, values.map((line, row) => [row, ...line.map(number)])));
  }

  function scaleBar(low, high) {
    const bar = make('canvas', {'aria-hidden': 'true'});
    paintBar(bar);
    return make('div', {className: 'scale'}, make('span', {}, low), bar, make('span', {}, high));
  }

  async function fieldChart({model, tiles: name, hw, ellipse, text}) {
    const of = await loadTiles(name);
    const geometry = of.geometry(0);
    const values = of.values(0, 0, 0);
    const [rows, columns] = geometry.keys.hw;
    const pixels = new ImageData(columns, rows);
    for (let row = 0; row < rows; row++) {
      for (let column = 0; column < columns; column++) {
        const cell = cellOf(geometry, null, [row, column]);
        setColour(pixels.data, row * columns + column, colourIndex(values[cell], 0, 1));
      }
    }
    const map = make('canvas', {width: columns, height: rows});
    map.getContext('2d').putImageData(pixels, 0, 0);
    const scale = Math.max(1, Math.ceil(LARGE / Math.max(...hw)));
    const canvas = make('canvas', {
      className: 'view', width: hw[1] * scale, height: hw[0] * scale, role: 'img', 'aria-label': `${nameOf(model)}: ${text}`,
    });
    const context = canvas.getContext('2d');
    context.imageSmoothingEnabled = false;
    const {stride, hw: cells} = geometry.keys;
    context.drawImage(map, 0, 0, stride[1] * cells[1] * scale, stride[0] * cells[0] * scale);
    for (const size of ellipse ? [1, 2] : []) {
      context.beginPath();
      context.ellipse((ellipse.x + 0.5) * scale, (ellipse.y + 0.5) * scale,
        size * ellipse.sigma_x * scale, size * ellipse.sigma_y * scale, 0, 0, 2 * Math.PI);
      for (const [stroke, line] of [['#000', 4], ['#fff', 2]]) {
        context.strokeStyle = stroke;
        context.lineWidth = line;
        context.stroke();
      }
    }
    return make('div', {}, make('h3', {}, nameOf(model)), canvas, scaleBar('0', '1'), make('p', {className: 'caption'}, text));
  }

  function markBlock() {
    for (const band of document.querySelectorAll('svg .now')) {
      band.setAttribute('x', Number(band.dataset.left) + state.block * Number(band.dataset.slot));
    }
  }

  function fill(id, ...children) {
    const section = byId(id);
    section.append(...children);
    if (!children.length) section.append(make('p', {className: 'note'}, 'None.'));
  }

  function buildCharts() {
    for (const id of ['measures', 'learned']) byId(id).before(...legend());
    fill('measures', ...data.measures.map(measureChart), ...data.norms.map(normChart));
    fill('learned', ...data.learned.map(learnedChart));
    fill('cka', ...data.cka.map(ckaChart));
  }

  function trouble(text) {
    byId('trouble').hidden = false;
    byId('trouble').textContent = text;
  }

  async function start() {
    const {hw} = data.images[0];
    [state.y, state.x] = hw.map((side) => (side - 1) / 2);
    buildControls();
    buildCharts();
    if (typeof DecompressionStream === 'undefined') {
      trouble('This browser cannot unpack the maps: it lacks DecompressionStream, which Chrome has from version 80, '
        + 'Firefox from 113 and Safari from 16.4. Text, charts and tables are complete.');
      return;
    }
    try {
      await show();
      fill('fields', ...(await Promise.all(data.fields.map(fieldChart))));
    } catch (error) {
      trouble(`The maps cannot be shown (${error.message}). Text, charts and tables are complete.`);
      throw error;
    }
    document.documentElement.dataset.ready = 'true';
  }

  start();
})();

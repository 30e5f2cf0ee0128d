'use strict';
(async () => {
  const byId = (id) => document.getElementById(id);
  const data = JSON.parse(byId('data').textContent);
  const numBlocks = Math.max(...data.models.map(({blocks}) => blocks));
  const state = {image: 0, query: 'token', y: 0, x: 0, block: numBlocks - 1, head: -1, probe: null};
  const LARGE = 448; // pixels: smaller images are drawn enlarged by a whole number
  const MOVES = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]};
  const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

  function make(tag, settings = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(settings)) {
      if (name in element) element[name] = value;
      else element.setAttribute(name, value);
    }
    element.append(...children);
    return element;
  }

  function number(value) {
    if (value === 0) return '0';
    const size = Math.abs(value);
    return size >= 1000 || size < 1e-4 ? value.toExponential(2) : value.toPrecision(3);
  }

  // --- stored maps ---

  async function inflated() {
    const bytes = Uint8Array.from(atob(byId('blob').textContent), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate'));
    return new Response(stream).arrayBuffer();
  }

  /** Values of one query, keys before the grid first; the mean over heads where head is -1. */
  function valuesOf(tiles, head, query) {
    const {heads, num_queries: queries, num_cells: cells, prefix: [, prefix]} = tiles;
    const codes = new Uint8Array(buffer, tiles.codes, heads * queries * cells);
    const numbers = new Float32Array(buffer, tiles.numbers, heads * queries * (2 + prefix));
    const chosen = head < 0 ? [...Array(heads).keys()] : [head];
    const sum = new Float64Array(prefix + cells);
    for (const one of chosen) {
      const tile = one * queries + query;
      const at = (2 + prefix) * tile;
      for (let i = 0; i < prefix; i++) sum[i] += numbers[at + 2 + i];
      for (let i = 0; i < cells; i++) sum[prefix + i] += numbers[at] + codes[tile * cells + i] * numbers[at + 1];
    }
    return sum.map((value) => value / chosen.length);
  }

  // --- tokens on the image ---

  /** Row and column of the token at a pixel. */
  const tokenAt = (plane, y, x) => [y, x].map((pixel, axis) =>
    clamp(Math.floor((pixel - plane.start[axis]) / plane.stride[axis]), 0, plane.hw[axis] - 1));

  const centreOf = (plane, token) => token.map((place, axis) => plane.start[axis] + (place + 0.5) * plane.stride[axis]);

  /** The stored query that is asked for: its index among the tiles, and its row and column; none for the class token. */
  function queryOf(tiles) {
    if (state.query === 'prefix' && tiles.has_class) return {index: 0, token: null};
    const {hw} = tiles.queries;
    const cell = tokenAt(tiles.queries, state.y, state.x).map((place) => Math.floor(place / tiles.step));
    return {index: tiles.prefix[0] + cell[0] * Math.ceil(hw[1] / tiles.step) + cell[1], token: keptToken(tiles, cell)};
  }

  const keptToken = (tiles, cell) => cell.map((place, axis) =>
    Math.min(place * tiles.step + Math.floor((tiles.step - 1) / 2), tiles.queries.hw[axis] - 1));

  /** Which value of a tile is that of a key; -1 for a key outside of the query's window. */
  function cellOf(tiles, token, key) {
    let [row, column] = key;
    let width = tiles.keys.hw[1];
    if (tiles.window[1]) {
      const places = [0, 1].map((axis) => {
        const [ofQuery, ofKey] = [token, key].map((t, side) =>
          (t[axis] - tiles.shift + tiles.padded[side][axis]) % tiles.padded[side][axis]);
        const same = Math.floor(ofQuery / tiles.window[0]) === Math.floor(ofKey / tiles.window[1]);
        return same ? ofKey % tiles.window[1] : -1;
      });
      if (Math.min(...places) < 0) return -1;
      [row, column] = places;
      width = tiles.window[1];
    }
    return tiles.prefix[1] + row * width + column;
  }

  // --- pictures ---

  async function loadPicture({src, hw}) {
    const image = new Image();
    image.src = src;
    await image.decode();
    const grey = make('canvas', {width: hw[1], height: hw[0]});
    const context = grey.getContext('2d');
    context.drawImage(image, 0, 0);
    const pixels = context.getImageData(0, 0, hw[1], hw[0]);
    for (let i = 0; i < pixels.data.length; i += 4) {
      const [r, g, b] = pixels.data.subarray(i, i + 3);
      pixels.data.fill(0.3 * r + 0.59 * g + 0.11 * b, i, i + 3);
    }
    context.putImageData(pixels, 0, 0);
    return {image, grey, hw, scale: Math.max(1, Math.ceil(LARGE / Math.max(...hw)))};
  }

  function fit(canvas, {hw, scale}, background) {
    canvas.width = hw[1] * scale;
    canvas.height = hw[0] * scale;
    canvas.classList.toggle('pixelated', scale > 4);
    const context = canvas.getContext('2d');
    context.imageSmoothingEnabled = false;
    context.drawImage(background, 0, 0, canvas.width, canvas.height);
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

  /** A canvas of cells, of their colours from 0 to 255; -1 is clear. */
  function coloured([rows, columns], colourAt) {
    const pixels = new ImageData(columns, rows);
    for (let row = 0; row < rows; row++) {
      for (let column = 0; column < columns; column++) {
        const index = colourAt(row, column);
        if (index >= 0) pixels.data.set([...data.colours[index], 255], 4 * (row * columns + column));
      }
    }
    const canvas = make('canvas', {width: columns, height: rows, 'aria-hidden': 'true'});
    canvas.getContext('2d').putImageData(pixels, 0, 0);
    return canvas;
  }

  // --- panels ---

  const picker = make('canvas', {className: 'view pick', tabIndex: 0, role: 'application', 'aria-roledescription': 'token picker'});
  const titled = (title, note, ...content) => make('figure', {},
    make('figcaption', {}, make('b', {}, title), make('span', {}, note)), ...content);

  /** One for each model and kind of map that it has. */
  const panels = data.models.flatMap((_, model) => Object.entries(data.kinds)
    .filter(([kind]) => data.images.some(({maps}) => maps[model][kind]))
    .map(([kind, note]) => newPanel(model, kind, note)));

  function newPanel(model, kind, note) {
    const canvas = make('canvas', {className: 'view', tabIndex: 0, role: 'img'});
    const [low, high, caption] = [make('span'), make('span'), make('span', {className: 'caption'})];
    const scale = make('div', {className: 'scale'}, low, coloured([1, 256], (row, column) => column), high);
    const {title} = data.models[model];
    const panel = {model, kind, canvas, low, high, caption, name: `${title}, ${note}`};
    panel.figure = titled(title, note, canvas, scale, caption);
    canvas.addEventListener('pointermove', (event) => probeAt(pixelOf(event, canvas)));
    canvas.addEventListener('pointerleave', () => probeAt(null));
    onArrows(canvas, (move) => {
      if (!panel.view) return;
      const {keys} = panel.view.tiles;
      const from = tokenAt(keys, ...(state.probe ?? [state.y, state.x]));
      probeAt(centreOf(keys, from.map((place, axis) => clamp(place + move[axis], 0, keys.hw[axis] - 1))));
    });
    return panel;
  }

  const tilesOf = (model, kind) => data.images[state.image].maps[model][kind]?.[state.block] ?? null;

  /** What a panel shows now; null where the block has no such map. */
  function viewOf({model, kind}) {
    const tiles = tilesOf(model, kind);
    if (!tiles || state.head >= tiles.heads) return null;
    const query = queryOf(tiles);
    const values = valuesOf(tiles, state.head, query.index);
    const [rows, columns] = tiles.keys.hw; // a window may have more keys, of padding
    const cells = Array.from({length: rows * columns}, (_, i) => cellOf(tiles, query.token, [Math.floor(i / columns), i % columns]));
    const onGrid = cells.filter((cell) => cell >= 0).map((cell) => values[cell]);
    return {tiles, query, values, low: Math.min(0, ...onGrid), high: Math.max(...onGrid)};
  }

  function paint(panel, low, high) {
    const {view, canvas} = panel;
    const picture = pictures[state.image];
    const context = fit(canvas, picture, picture.grey);
    panel.low.textContent = view ? number(low) : '';
    panel.high.textContent = view ? number(high) : '';
    panel.caption.textContent = captionOf(panel);
    canvas.setAttribute('aria-label', `${panel.name}: ${view ? `highest ${number(view.high)}` : panel.caption.textContent}`);
    if (!view) return;
    const {tiles, query, values} = view;
    const {start, stride, hw} = tiles.keys;
    const map = coloured(hw, (row, column) => {
      const cell = cellOf(tiles, query.token, [row, column]);
      if (cell < 0) return -1;
      return high > low ? Math.round(255 * clamp((values[cell] - low) / (high - low), 0, 1)) : 0;
    });
    context.globalAlpha = byId('cover').valueAsNumber / 100;
    context.drawImage(map, ...[start[1], start[0], stride[1] * hw[1], stride[0] * hw[0]].map((side) => side * picture.scale));
    context.globalAlpha = 1;
    if (query.token) outline(context, picture.scale, tiles.queries, query.token, '#fff');
    if (state.probe) outline(context, picture.scale, tiles.keys, tokenAt(tiles.keys, ...state.probe), '#ff9d00');
  }

  function captionOf({view, model}) {
    if (!view) return 'This block has no such map or head.';
    const names = data.models[model].prefix.slice(0, view.tiles.prefix[1]);
    return names.map((name, i) => `to the ${name}: ${number(view.values[i])}`).join(', ');
  }

  /** The tiles of the last model's attention, whose queries the picker offers. */
  const leading = () => tilesOf(data.models.length - 1, 'probs');

  function paintPicker() {
    const picture = pictures[state.image];
    const context = fit(picker, picture, picture.image);
    const tiles = leading();
    if (!tiles || !queryOf(tiles).token) return;
    outline(context, picture.scale, tiles.queries, queryOf(tiles).token, '#fff');
  }

  /** Query, block and head, and the value at the key under the pointer. */
  function described() {
    const tiles = leading();
    const token = tiles && queryOf(tiles).token;
    const query = token ? `token at row ${token[0]}, column ${token[1]} of ${tiles.queries.hw.join(' by ')}; ` : '';
    const where = `${data.images[state.image].name}; ${query}block ${state.block}, ${state.head < 0 ? 'mean of heads' : `head ${state.head}`}.`;
    const views = panels.filter(({view}) => view);
    if (!state.probe || !views.length) return where;
    const values = views.map(({name, view: {tiles: own, query: from, values: found}}) => {
      const cell = cellOf(own, from.token, tokenAt(own.keys, ...state.probe));
      return `${name}: ${cell < 0 ? "outside of the token's window" : number(found[cell])}`;
    });
    const [row, column] = tokenAt(views.at(-1).view.tiles.keys, ...state.probe);
    return `${where} Value at row ${row}, column ${column}: ${values.join('; ')}.`;
  }

  function repaint() {
    const heads = Math.max(1, ...panels.map(({model, kind}) => tilesOf(model, kind)?.heads ?? 1));
    state.head = Math.min(state.head, heads - 1);
    for (const panel of panels) panel.view = viewOf(panel);
    const views = panels.map(({view}) => view).filter(Boolean);
    byId('head').max = heads - 1;
    byId('head').valueAsNumber = state.head;
    byId('block').valueAsNumber = state.block;
    byId('block-value').value = `${state.block} of 0–${numBlocks - 1}`;
    byId('head-value').value = state.head < 0 ? 'mean' : `${state.head} of 0–${heads - 1}`;
    const common = [Math.min(...views.map(({low}) => low)), Math.max(...views.map(({high}) => high))];
    for (const panel of panels) {
      const own = panel.view && [panel.view.low, panel.view.high];
      paint(panel, ...(byId('shared').checked ? common : own ?? common));
    }
    paintPicker();
    byId('readout').textContent = described();
  }

  // --- choices ---

  function show() {
    const {predictions} = data.images[state.image];
    byId('predictions').replaceChildren(...predictions.map(({text, src}, i) =>
      titled(data.models[i]?.title ?? 'Ground truth', text, ...(src ? [make('img', {src, alt: text || 'drawn'})] : []))));
    repaint();
  }

  function pixelOf(event, canvas) {
    const box = canvas.getBoundingClientRect();
    const {hw} = data.images[state.image];
    // The picture lies at the top left of its box and keeps its shape.
    const scale = Math.min(box.width / hw[1], box.height / hw[0]);
    return [(event.clientY - box.top) / scale, (event.clientX - box.left) / scale]
      .map((pixel, axis) => clamp(pixel, 0, hw[axis] - 1e-6));
  }

  function probeAt(pixel) {
    state.probe = pixel;
    repaint();
  }

  function pick(pixel) {
    [state.y, state.x] = pixel;
    state.query = byId('query').value = 'token';
    repaint();
  }

  function moveToken(move) {
    const tiles = leading();
    if (!tiles) return;
    const {queries, step} = tiles;
    const cell = tokenAt(queries, state.y, state.x).map((place, axis) =>
      clamp(Math.floor(place / step) + move[axis], 0, Math.ceil(queries.hw[axis] / step) - 1));
    pick(centreOf(queries, keptToken(tiles, cell)));
  }

  function onArrows(canvas, act) {
    canvas.addEventListener('keydown', (event) => {
      if (!(event.key in MOVES)) return;
      event.preventDefault();
      act(MOVES[event.key]);
    });
  }

  function onChange(id, event, set) {
    byId(id).addEventListener(event, () => set(byId(id)));
  }

  function buildControls() {
    byId('panels').append(titled('Token', 'click, or arrow keys', picker), ...panels.map(({figure}) => figure));
    byId('image').append(...data.images.map(({name}, value) => make('option', {value}, name)));
    byId('query').parentElement.hidden = !data.models.some(({prefix}) => prefix.includes('cls_token'));
    byId('block').max = numBlocks - 1;
    onChange('image', 'change', ({value}) => { state.image = Number(value); show(); });
    onChange('query', 'change', ({value}) => { state.query = value; repaint(); });
    onChange('block', 'input', ({valueAsNumber}) => { state.block = valueAsNumber; repaint(); });
    onChange('head', 'input', ({valueAsNumber}) => { state.head = valueAsNumber; repaint(); });
    onChange('cover', 'input', repaint);
    onChange('shared', 'change', repaint);
    picker.addEventListener('click', (event) => pick(pixelOf(event, picker)));
    onArrows(picker, moveToken);
  }

  let buffer, pictures;
  try {
    [buffer, pictures] = [await inflated(), await Promise.all(data.images.map(loadPicture))];
    [state.y, state.x] = data.images[0].hw.map((side) => (side - 1) / 2);
    buildControls();
    show();
    document.documentElement.dataset.ready = 'true';
  } catch (error) {
    byId('trouble').hidden = false;
    byId('trouble').textContent = `The maps cannot be shown in this browser: ${error.message}.`;
    throw error;
  }
})();

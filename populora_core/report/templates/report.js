// What the page gains where scripts run: a crosshair that tells the numbers, lines that can be hidden, larger plots,
// tables that can be sorted, and the keyboard. Everything it shows is on the page without it: in the drawings and in the tables behind them.
(() => {
  'use strict';
  const NS = 'http://www.w3.org/2000/svg', BOTTOM = 38, TOP = 10;

  function make(parent, name, attributes = {}, text = '') {
    const made = parent.namespaceURI === NS ? document.createElementNS(NS, name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.textContent = text;
    parent.append(made);
    return made;
  }

  function pressed(element, act) {
    element.addEventListener('click', act);
    if (element.tagName !== 'BUTTON') {
      element.addEventListener('keydown', event => {
        if (event.key === 'Enter' || event.key === ' ') { event.preventDefault(); act(event); }
      });
    }
  }

  function enlarging(figure) {
    const button = make(figure.querySelector('figcaption'), 'button', {type: 'button', 'aria-pressed': 'false'}, 'larger');
    const set = large => {
      figure.classList.toggle('large', large);
      button.setAttribute('aria-pressed', large);
      button.textContent = large ? 'smaller' : 'larger';
      if (large) figure.scrollIntoView({block: 'nearest'});
    };
    button.addEventListener('click', () => set(!figure.classList.contains('large')));
    figure.addEventListener('keydown', event => { if (event.key === 'Escape') set(false); });
  }

  function toggling(figure, svg) {
    const labels = [...svg.querySelectorAll('.label')];
    figure.querySelectorAll('.keys li').forEach((item, place) => {
      const button = document.createElement('button');
      button.type = 'button';
      button.dataset.series = place;
      button.append(...item.childNodes);
      item.append(button);
      labels.push(button);
    });
    if (labels.length < 2) return;
    for (const label of labels) {
      if (label.namespaceURI === NS) {
        label.setAttribute('role', 'button');
        label.setAttribute('tabindex', '0');
      }
      label.setAttribute('aria-pressed', 'true');
      pressed(label, () => {
        const shown = label.getAttribute('aria-pressed') !== 'true';
        label.setAttribute('aria-pressed', shown);
        for (const mark of svg.querySelectorAll(`[data-series="${label.dataset.series}"]:not(.label)`)) {
          mark.style.display = shown ? '' : 'none';
        }
      });
    }
  }

  function crosshair(figure, svg) {
    const names = [...figure.querySelectorAll('.data th')].map(cell => cell.textContent);
    const rows = [...figure.querySelectorAll('.data tr[data-x]')].map(
      row => ({x: Number(row.dataset.x), cells: [...row.cells].map(cell => cell.textContent)}));
    if (!rows.length) return null;
    const height = svg.viewBox.baseVal.height;
    const line = make(svg, 'line', {class: 'cross', y1: TOP, y2: height - BOTTOM, visibility: 'hidden'});
    const told = make(figure, 'output', {}, '');
    let at = rows.length;
    const own = {
      along: names[0],
      mark(row) {
        line.setAttribute('visibility', row ? 'visible' : 'hidden');
        if (row) { line.setAttribute('x1', row.x); line.setAttribute('x2', row.x); }
        if (!row) told.textContent = '';
      },
      at: key => rows.find(row => row.cells[0] === key),
    };
    const show = place => {
      at = Math.max(0, Math.min(rows.length - 1, place));
      const cells = rows[at].cells;
      for (const other of plots) other.mark(other.along === own.along ? other.at(cells[0]) : undefined);
      told.textContent = names.map((name, i) => cells[i] && `${name} ${cells[i]}`.trim()).filter(Boolean).join(' · ');
    };
    const hide = () => { for (const other of plots) other.mark(undefined); };
    svg.addEventListener('pointermove', event => {
      const x = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse()).x;
      const away = rows.map(row => Math.abs(row.x - x));
      show(away.indexOf(Math.min(...away)));
    });
    svg.addEventListener('pointerleave', hide);
    svg.addEventListener('blur', hide);
    svg.setAttribute('tabindex', '0');
    svg.addEventListener('keydown', event => {
      const step = {ArrowLeft: -1, ArrowRight: 1, Home: -rows.length, End: rows.length}[event.key];
      if (step && event.target === svg) { event.preventDefault(); show(at + step); }
    });
    return own;
  }

  // A header sorts the rows of its table: the largest first, then the smallest; what holds no number by its letters.
  function sorting(table) {
    const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
    if (body.rows.length < 3) return;
    const SIZES = {k: 1e3, M: 1e6, G: 1e9, ms: 1e-3, min: 60, h: 3600};
    const size = text => {
      const found = text.replaceAll('−', '-').match(/^([+-]?)([\d.,]+(?:e[+-]?\d+)?)(?:\s?([a-zA-Z]+))?(?!\w)/);
      return found ? (found[1] === '-' ? -1 : 1) * found[2].replaceAll(',', '') * (SIZES[found[3]] ?? 1) : -Infinity;
    };
    const compare = (one, other) => size(one) - size(other) || one.localeCompare(other, undefined, {numeric: true});
    heads.forEach((head, column) => {
      const button = document.createElement('button');
      button.type = 'button';
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener('click', () => {
        const sign = head.getAttribute('aria-sort') === 'descending' ? 1 : -1;
        for (const other of heads) other.removeAttribute('aria-sort');
        head.setAttribute('aria-sort', sign > 0 ? 'ascending' : 'descending');
        const text = row => row.cells[column].textContent;
        body.append(...[...body.rows].sort((one, other) => sign * compare(text(one), text(other))));
      });
    });
  }

  // A table behind a plot is out of the page until it is opened: a study's have 16,000 cells, through which everything
  // that reads a page would go.
  function shelving(details) {
    if (details.open) return;
    const table = details.querySelector(':scope > .scroll');
    table.remove();
    details.addEventListener('toggle', () => details.append(table), {once: true});
  }

  function opening() {
    const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    const details = target && target.querySelector(':scope > details');
    if (details) { details.open = true; target.scrollIntoView(); }
  }

  // In a notebook's frame: the plots alone, in a frame as high as they are.
  function framed(frame) {
    document.documentElement.classList.add('framed');
    const fit = () => { frame.style.height = `${document.documentElement.offsetHeight}px`; };
    new ResizeObserver(fit).observe(document.documentElement);
    addEventListener('load', () => setTimeout(fit));  // after the notebook has fitted it to a page that is not laid out
  }

  const plots = [];
  for (const figure of document.querySelectorAll('figure.plot')) {
    const svg = figure.querySelector(':scope > svg');
    svg.setAttribute('role', 'group');
    enlarging(figure);
    toggling(figure, svg);
    const found = crosshair(figure, svg);
    if (found) plots.push(found);
  }
  document.querySelectorAll('table').forEach(sorting);
  document.querySelectorAll('details.data').forEach(shelving);
  if (frameElement) framed(frameElement);
  addEventListener('hashchange', opening);
  opening();
})();

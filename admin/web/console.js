// The console. Text reaches the page as text nodes alone. Each second the view of the present
// page is made anew and merged into what is there, so that focus and selection stay.

const SVG = 'http://www.w3.org/2000/svg';

// element makes one; keys with "on" are listeners, null is left out.
function element(space, tag, attributes, children) {
  const e = space ? document.createElementNS(space, tag) : document.createElement(tag);
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith('on')) e[key] = value;
    else e.setAttribute(key, value === true ? '' : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    e.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return e;
}
const h = (tag, attributes, ...children) => element(null, tag, attributes, children);
const s = (tag, attributes, ...children) => element(SVG, tag, attributes, children);

const listeners = ['onclick', 'onchange', 'oninput', 'onsubmit', 'onpointermove', 'onpointerleave', 'onclose'];

// merge makes the old node like the new one.
function merge(old, now) {
  if (old.nodeType !== now.nodeType || old.nodeName !== now.nodeName) {
    old.replaceWith(now);
    return;
  }
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== now.data) old.data = now.data;
    return;
  }
  for (const { name } of [...old.attributes]) {
    if (!now.hasAttribute(name) && !(name === 'open' && (old.nodeName === 'DETAILS' || old.nodeName === 'DIALOG'))) old.removeAttribute(name);
  }
  for (const { name, value } of now.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  for (const name of listeners) old[name] = now[name];
  if (old.nodeName === 'INPUT' && old.type === 'checkbox') old.checked = now.hasAttribute('checked');
  if (old.nodeName === 'PROGRESS' && old.value !== now.value) old.value = now.value;
  const [before, after] = [[...old.childNodes], [...now.childNodes]];
  for (let i = 0; i < after.length; i++) i < before.length ? merge(before[i], after[i]) : old.append(after[i]);
  for (let i = after.length; i < before.length; i++) before[i].remove();
}

// Numbers as people read them.
function bytes(n) {
  if (n === null || n === undefined) return '–';
  for (const [size, unit] of [[2 ** 40, 'TiB'], [2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [2 ** 10, 'KiB']]) {
    if (Math.abs(n) >= size) return (n / size).toFixed(1) + ' ' + unit;
  }
  return Math.round(n) + ' B';
}
function count(n) {
  if (n === null || n === undefined || Number.isNaN(n)) return '–';
  if (n >= 1e6) return (n / 1e6).toFixed(n >= 1e7 ? 0 : 1) + ' M';
  if (n >= 1e4) return (n / 1e3).toFixed(n >= 1e5 ? 0 : 1) + ' k';
  return n >= 100 || Number.isInteger(n) ? Math.round(n).toString() : n.toFixed(1);
}
function duration(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return '–';
  if (seconds < 0.001) return '0 s';
  if (seconds < 1) return Math.round(seconds * 1000) + ' ms';
  if (seconds < 60) return seconds.toFixed(seconds < 10 ? 1 : 0) + ' s';
  const m = Math.floor(seconds / 60);
  if (m < 60) return m + ' min ' + Math.floor(seconds % 60) + ' s';
  const hours = Math.floor(m / 60);
  return hours < 48 ? hours + ' h ' + (m % 60) + ' min' : Math.floor(hours / 24) + ' days';
}
const time = (at) => at ? new Date(at).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', second: '2-digit', hour12: false }) : '–';
const clock = (at) => (at && Date.now() - new Date(at) > 20 * 3600e3 ? new Date(at).toLocaleDateString([], { day: 'numeric', month: 'short' }) + ', ' : '') + time(at);
const ago = (at) => at ? duration(Math.max(0, (Date.now() - Date.parse(at)) / 1000)) + ' ago' : 'never';

// visible shows what would be acted upon: characters that turn the direction of a text, and controls.
const visible = (text) => String(text ?? '').replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g, (c) => '<U+' + c.charCodeAt(0).toString(16).toUpperCase().padStart(4, '0') + '>');

// name isolates a text that others chose, and shortens it.
function name(text, most = 60) {
  text = visible(text);
  if (text.length <= most) return h('bdi', { title: null }, text);
  return h('bdi', { title: text }, text.slice(0, most) + '…');
}

const state = {
  about: null, status: null, at: 0, failed: null, held: false,
  obstacle: null, obstacleOf: '', obstacleAt: 0,
  range: 900, history: null, changes: [], cursor: null,
  tables: null, explained: {}, check: null, checking: false, problem: null,
  configuration: null, filter: '', chosenOnly: true, lines: [], level: 'info', login: null, copied: null,
  letters: null, wanted: { state: 'waiting' }, chosen: new Set(), look: null, plan: null, planning: false, words: '', job: null, said: null,
  rows: [], passed: null, only: { table: '', topic: '' },
  flows: {}, flowsAt: 0, waiting: null, waitingAt: 0, waitingTook: 0, asideWas: 0, crowded: false,
};

async function ask(path, options) {
  const answer = await fetch(path, { credentials: 'same-origin', ...options });
  if (answer.status === 401 && location.pathname !== '/login') {
    go('/login?next=' + encodeURIComponent(location.pathname.slice(1)));
    throw new Error('sign in first');
  }
  const kind = answer.headers.get('Content-Type') ?? '';
  const body = kind.includes('json') ? await answer.json() : await answer.text();
  if (!answer.ok) throw Object.assign(new Error(body.detail ?? String(body).trim() ?? answer.statusText), { status: answer.status });
  return body;
}
const formToken = () => ({ 'X-Form-Token': state.about?.form_token ?? '' });
const post = (path, body) => ask(path, { method: 'POST', headers: { 'Content-Type': 'application/json', ...formToken() }, body: JSON.stringify(body ?? {}) });
const acts = () => state.about?.actions && state.about.role === 'operator';

// --- what is said in words -------------------------------------------------------------------

const levels = { ok: ['●', 'ok'], warn: ['▲', 'attention'], bad: ['■', 'stopped'] };

function level(st) {
  if (st.state === 'blocked' || short(st)) return 'bad';
  if (st.state === 'reconnecting' || st.state === 'starting' || st.state === 'stopping' || st.reason && st.state !== 'standby') return 'warn';
  return st.catch_up || st.parked_keys > 0 || state.waiting > 0 ? 'warn' : 'ok';
}

// short reports whether the slot's WAL is lost, or may soon be.
function short(st) {
  const slot = st.slot_state;
  return slot && (slot.wal_status === 'lost' || (slot.safe_wal_bytes <= 0 && slot.safe_wal_bytes !== null || slot.safe_wal_seconds !== null && slot.safe_wal_seconds < 3600) && st.lag_bytes > 16 * 2 ** 20);
}

function walLasts(st) {
  const slot = st.slot_state;
  if (st.reason === 'slot_missing') return ['no slot', 'nothing keeps WAL for the relay'];
  if (!slot) return ['–', st.source_reached ? 'PostgreSQL does not answer' : 'PostgreSQL was not asked yet'];
  if (slot.wal_status === 'lost') return ['lost', 'the slot has lost its WAL'];
  const kept = bytes(st.retained_wal_bytes) + ' kept' + (st.shards ? '; of the slot that is lost first' : '');
  if (slot.safe_wal_bytes === null) return ['no limit set', kept + '; until the disk is full'];
  const fits = bytes(Math.max(0, slot.safe_wal_bytes)) + ' more fit, if nothing is confirmed; ' + kept;
  if (slot.safe_wal_seconds === null) return ['not known', fits];
  return [slot.safe_wal_seconds > 10 * 86400 ? '> 10 days' : duration(slot.safe_wal_seconds), fits];
}

// --- parts -----------------------------------------------------------------------------------

function copyButton(text, label = 'Copy', main = false) {
  return h('button', {
    type: 'button', class: main ? 'primary' : null, 'data-copy': main ? text : null, 'aria-label': label + ': ' + visible(text),
    onclick: () => copy(text),
  }, state.copied === text ? 'Copied ✓' : label);
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch { // over plain HTTP from another machine there is no clipboard
    const area = h('textarea', { class: 'hidden', 'aria-hidden': 'true' });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand('copy');
    area.remove();
  }
  state.copied = text;
  draw();
  setTimeout(() => { state.copied = null; draw(); }, 2000);
}

const command = (text, main, where = 'in a shell') => h('div', {}, h('p', { class: 'muted where' }, where), h('div', { class: 'cmd' }, h('pre', { tabindex: '0' }, visible(text)), copyButton(text, 'Copy', main)));

function commands(way, main) {
  const parts = [];
  for (const [where, text] of [['in psql, on the relay\'s database', way.sql], [`in ${state.about?.file ? visible(state.about.file) : 'the configuration'}: put it into the section of that name, which may be there once`, way.config], ['in a shell', way.shell]]) {
    if (text) parts.push(command(text, main && parts.length === 0, where));
  }
  return parts;
}

// steps are the commands of a way, with what is done before and after them.
const steps = (way, main) => [
  way.stopped && h('p', {}, h('b', {}, 'Stop the relay first'), ', and leave this page open: it goes on showing this.'), /ADMIN\.PROPERTIES/.test(way.shell) && h('p', {}, 'ADMIN.PROPERTIES is a file with the login of an administrator of the brokers.'), commands(way, main),
  h('p', {}, way.stopped ? 'Then start the relay.' : way.restart ? 'Then restart the relay.' : 'Then the relay goes on by itself, at its next attempt.')];

function headline(st) {
  const of = level(st);
  const since = st.reason_since && st.reason_since > st.since ? st.reason_since : st.since;
  const first = state.obstacle?.ways?.[0];
  return h('section', { class: 'card head ' + of + (stale() ? ' stale' : ''), 'aria-label': 'State' },
    h('h1', {}, h('span', { class: 'shape', 'aria-hidden': 'true' }, levels[of][0]), h('span', { class: 'hidden' }, levels[of][1] + ': '), visible(st.headline)),
    st.message && h('p', {}, name(st.message, 900)),
    h('p', { class: 'sub' }, st.state, st.reason ? [' with ', h('code', {}, st.reason)] : null, ' since ', clock(since),
      st.obstacle?.attempts ? ` · ${st.obstacle.attempts} ${st.obstacle.attempts === 1 ? 'attempt' : 'attempts'} failed` : null,
      st.obstacle?.next_try ? ', next ' + next(st.obstacle.next_try) : null),
    state.waiting > 0 && h('p', {}, `${count(state.waiting)} ${state.waiting === 1 ? 'row is set aside and waits' : 'rows are set aside and wait'} until somebody sends ${state.waiting === 1 ? 'it' : 'them'}: see `, h('a', { href: '/dead-letters' }, 'Dead letters'), '.'),
    st.obstacle && first && h('div', {},
      h('p', {}, h('b', {}, 'What to do: '), first.title, '. ', h('a', { href: '/blocked' }, state.obstacle.ways.length > 1 ? `All ${state.obstacle.ways.length} ways out` : 'More about it')),
      steps(first, true)),
    st.obstacle && state.obstacle?.heals_by_itself && h('p', {}, 'This passes by itself: the relay goes on trying. ', h('a', { href: '/blocked' }, 'What it means')));
}

function next(at) {
  const left = (Date.parse(at) - Date.now()) / 1000;
  return left > 0 ? 'in ' + Math.ceil(left) + ' s' : 'now';
}

function figure(label, big, sub, alarm, extra) {
  return h('div', { class: alarm ? 'alarm' : null }, h('dt', {}, label), h('dd', { class: 'big' }, big), h('dd', { class: 'sub' }, sub, extra));
}

function figures(st) {
  const [lasts, fits] = walLasts(st);
  const last = newest();
  const full = st.in_flight_limit_bytes ? st.in_flight_bytes / st.in_flight_limit_bytes : 0;
  const waits = state.waiting, parts = [`${count(st.dead_letters_total)} dead letters, ${count(st.events_rejected_total)} rejected since the start`];
  if (st.parked_keys) parts.unshift(`${count(st.parked_keys)} ${st.parked_keys === 1 ? 'key' : 'keys'} parked`);
  return h('section', { class: 'card', 'aria-label': 'Figures' }, h('dl', { class: 'figures' },
    figure('Behind', st.lag_seconds === null ? 'not known' : duration(st.lag_seconds), (st.lag_bytes === null ? 'WAL not known: PostgreSQL does not answer' : bytes(st.lag_bytes) + ' of WAL not confirmed') + (st.rows_behind === null || st.rows_behind === undefined ? '' : `, ≈ ${count(st.rows_behind)} rows (by the rows in as much WAL of the last 10 min)`)),
    figure('WAL lasts', lasts, fits, short(st) || lasts === 'no slot'),
    figure('Rate', count(last.acknowledged) + '/s', count(last.received) + '/s read from PostgreSQL'),
    figure('Age p99', duration(last.age_p99), 'from commit to acknowledgement; p50 ' + duration(last.age_p50)),
    figure('In flight', count(st.in_flight_events) + (st.in_flight_events === 1 ? ' row' : ' rows'), `${bytes(st.in_flight_bytes)} of ${bytes(st.in_flight_limit_bytes)}`, false,
      h('progress', { max: '100', value: Math.round(100 * Math.min(1, full)), 'aria-label': 'memory in flight' })),
    figure('Set aside', waits === null ? count(st.dead_letters_total) : count(waits) + ' waiting', parts.join('; '), false, waits > 0 && [' ', h('a', { href: '/dead-letters' }, 'Look at them')])));
}

function flow(st) {
  const last = newest();
  const busy = [...(st.topic_rates ?? [])].sort((a, b) => b.per_second - a.per_second || b.total - a.total);
  const read = st.tables ?? [];
  const source = !st.source_connected && st.state !== 'standby';
  const kafka = !st.sink_connected || st.reason.startsWith('kafka') || st.obstacle?.row && st.state === 'blocked';
  const edge = (rate, broken, why) => h('li', { class: 'edge' + (broken ? ' broken' : rate > 0 ? '' : ' idle') }, broken ? why : count(rate) + '/s');
  const row = (f) => h('tr', {}, h('th', { scope: 'row' }, name(f.name, 40)), h('td', {}, count(f.per_second) + '/s'));
  const more = (n, what) => n > 0 && h('p', {}, `and ${n} more ${what}`);
  return h('section', { class: 'card', 'aria-label': 'The way of the rows' }, h('h2', {}, 'The way of the rows'), h('ol', { class: 'flow' },
    h('li', {}, h('h3', {}, 'PostgreSQL'), h('p', {}, 'server ', st.lsn.server || '–'), h('p', {}, 'slot ', name(st.slot, 40)), h('p', {}, st.last_look ? bytes(st.last_look.retained_wal_bytes) + ' of WAL kept when it answered last' : bytes(st.retained_wal_bytes) + ' of WAL kept')),
    edge(last.received ?? 0, source, 'no stream'),
    h('li', {}, h('h3', {}, 'Router'), read.length ? h('table', {}, h('tbody', {}, read.slice(0, 5).map(row))) : h('p', {}, 'no row read yet'), more(read.length - 5, 'tables'),
      h('p', {}, count(st.events_rejected_total) + ' rejected')),
    edge(last.received ?? 0, false),
    h('li', {}, h('h3', {}, 'In flight'), h('p', {}, count(st.in_flight_events) + ' rows, ' + bytes(st.in_flight_bytes)), h('p', {}, 'oldest ', st.oldest_unacked_seconds === null || !st.in_flight_events ? '–' : duration(st.oldest_unacked_seconds))),
    edge(last.acknowledged ?? 0, kafka, st.state === 'blocked' ? 'held up' : 'no broker'),
    h('li', {}, h('h3', {}, 'Kafka'), busy.length ? h('table', {}, h('tbody', {}, busy.slice(0, 10).map(row))) : h('p', {}, 'nothing acknowledged yet'), more(Math.max(0, (st.topics ?? []).length - 10), 'topics'))));
}

// --- charts ----------------------------------------------------------------------------------

const charts = [
  { title: 'Rows a second', unit: count, series: [['received', 'read'], ['acknowledged', 'acknowledged']] },
  { title: 'Behind', unit: duration, series: [['lag_seconds', 'oldest row']] },
  { title: 'WAL', unit: bytes, series: [['lag_bytes', 'not confirmed'], ['retained_bytes', 'kept']], limit: (st) => st.slot_state?.safe_wal_bytes >= 0 && st.slot_state?.safe_wal_bytes !== null ? st.slot_state.safe_wal_bytes + st.retained_wal_bytes : null },
  { title: 'Age at acknowledgement', unit: duration, series: [['age_p50', 'p50'], ['age_p95', 'p95'], ['age_p99', 'p99'], ['produce_p95', 'in Kafka, p95']] },
  { title: 'In flight', unit: bytes, series: [['in_flight_bytes', 'memory']], limit: (st) => st.in_flight_limit_bytes },
  { title: 'Oldest row in flight', unit: duration, series: [['oldest_unacked', 'not acknowledged for']] },
  { title: 'Memory of the process', unit: bytes, series: [['resident_bytes', 'resident'], ['heap_bytes', 'heap']] },
  { title: 'Processor', unit: (v) => v === null || v === undefined ? '–' : (v * 100).toFixed(v < 0.1 ? 1 : 0) + ' % of a core', series: [['cpu', 'used']] },
];

function newest() {
  return state.newest ?? {};
}

function chart(of, st) {
  const w = 600, t = 100, H = state.history;
  const columns = of.series.map(([key]) => H.series[key] ?? []);
  const n = columns[0].length;
  let most = 0;
  for (const c of columns) for (const v of c) if (v > most) most = v;
  const limit = of.limit?.(st) ?? null;
  const near = limit !== null && most > limit / 4;
  const top = (near ? Math.max(most, limit) : most) * 1.08 || 1;
  const x = (i) => n > 1 ? (i * w / (n - 1)) : w;
  const y = (v) => t - v / top * (t - 2) - 1;
  const paths = columns.map((c, k) => {
    let d = '', pen = false;
    for (let i = 0; i < n; i++) {
      if (c[i] === null) { pen = false; continue; }
      d += (pen ? 'L' : 'M') + x(i).toFixed(1) + ' ' + y(c[i]).toFixed(1) + (pen ? '' : 'h.01');
      pen = true;
    }
    return s('path', { class: 'line l' + (k + 1), d });
  });
  const at = state.cursor === null ? n - 1 : Math.min(n - 1, Math.round(state.cursor * (n - 1)));
  let [low, high] = [Infinity, -Infinity];
  for (const v of columns.at(-1)) if (v !== null) { low = Math.min(low, v); high = Math.max(high, v); }
  const shown = (k) => columns[k][at] ?? (at === n - 1 ? columns[k][at - 1] : null) ?? null; // this second may not be sampled yet
  const range = high >= low ? `between ${of.unit(low)} and ${of.unit(high)}, last ${of.unit(shown(columns.length - 1))}` : 'nothing known yet';
  const move = (e) => { const box = e.currentTarget.getBoundingClientRect(); state.cursor = Math.min(1, Math.max(0, (e.clientX - box.left) / box.width)); draw(); };
  return h('figure', {},
    h('figcaption', {}, h('b', {}, of.title), h('span', { class: 'muted' }, state.cursor === null ? 'now' : clock(Date.parse(H.from) + at * H.step_seconds * 1000))),
    s('svg', { viewBox: `0 0 ${w} ${t}`, preserveAspectRatio: 'none', role: 'img', 'aria-label': `${of.title}, ${of.series.at(-1)[1]}: ${range}`, onpointermove: move, onpointerleave: () => { state.cursor = null; draw(); } },
      bands(x, t), s('line', { class: 'grid', x1: 0, x2: w, y1: t - .5, y2: t - .5 }), s('line', { class: 'grid', x1: 0, x2: w, y1: .5, y2: .5 }),
      near && s('line', { class: 'limit', x1: 0, x2: w, y1: y(limit), y2: y(limit) }), paths,
      state.cursor !== null && s('line', { class: 'cursor', x1: x(at), x2: x(at), y1: 0, y2: t })),
    h('p', { class: 'key' }, of.series.map(([, label], k) => h('span', { class: 'c' + (k + 1) }, label + ' ' + of.unit(shown(k)))), h('span', {}, 'scale to ' + of.unit(top)), near && h('span', {}, 'dashed: limit ' + of.unit(limit))),
    h('details', {}, h('summary', {}, 'As a table'), h('div', { class: 'wide', tabindex: '0', role: 'region', 'aria-label': of.title + ' as a table' }, numbers(of, columns, n))));
}

// bands are times in which the relay was blocked or reconnecting.
function bands(x, t) {
  const of = state.history.series.state ?? [], all = [];
  for (let i = 0; i < of.length; i++) {
    const worst = of[i];
    if (worst !== 3 && worst !== 4) continue;
    let end = i;
    while (end + 1 < of.length && of[end + 1] === worst) end++;
    all.push(s('rect', { class: 'band' + worst, x: x(i), y: 0, width: Math.max(2, x(end + 1) - x(i)), height: t }));
    i = end;
  }
  return all;
}

function numbers(of, columns, n) {
  const step = Math.max(1, Math.floor(n / 12)), rows = [];
  for (let i = n - 1; i >= 0 && rows.length < 12; i -= step) {
    rows.push(h('tr', {}, h('th', { scope: 'row' }, clock(Date.parse(state.history.from) + i * state.history.step_seconds * 1000)), columns.map((c) => h('td', { class: 'num' }, of.unit(c[i])))));
  }
  return h('table', { class: 'list' }, h('thead', {}, h('tr', {}, h('th', { scope: 'col' }, 'Time'), of.series.map(([, label]) => h('th', { scope: 'col', class: 'num' }, label)))), h('tbody', {}, rows));
}

function chartSection(st) {
  const choose = (seconds, label) => h('button', { type: 'button', 'aria-pressed': String(state.range === seconds), class: state.range === seconds ? null : 'plain', onclick: () => { state.range = seconds; loadHistory(); } }, label);
  return h('section', { class: 'card', 'aria-label': 'Charts' },
    h('div', { class: 'row' }, h('h2', {}, 'The time before'), h('span', { class: 'push row' }, choose(900, '15 min'), state.about?.history_seconds >= 3600 && choose(Math.min(3600, state.about.history_seconds), '1 h'), state.about?.history_seconds > 3600 && choose(state.about.history_seconds, duration(state.about.history_seconds)))),
    h('p', { class: 'muted note' }, 'Shaded: blocked (red), reconnecting (amber).'),
    h('div', { class: 'charts' }, charts.map((of) => chart(of, st))));
}

// --- pages -----------------------------------------------------------------------------------

const pages = {
  '/': { label: 'Now', key: 'n', view: now },
  '/blocked': { label: 'Blocked', key: 'b', view: blocked },
  '/dead-letters': { label: 'Dead letters', key: 'd', view: lettersPage, load: openLetters },
  '/tail': { label: 'Tail', key: 'w', view: tailPage, load: openTail },
  '/tables': { label: 'Tables', key: 't', view: tables, load: () => { loadTables(); loadFlows('tables', 'topics'); } },
  '/shards': { label: 'Shards', key: 's', view: shards, load: () => loadFlows('shards') },
  '/check': { label: 'Check', key: 'c', view: checkPage, load: loadCheck },
  '/config': { label: 'Config', key: 'o', view: config, load: loadConfig },
  '/log': { label: 'Log', key: 'l', view: log, load: loadLog },
};

function now(st) {
  return [
    headline(st), figures(st), flow(st),
    state.history ? chartSection(st) : h('section', { class: 'card muted' }, state.about?.history_seconds === 0 ? 'No figures are kept: http.console.history is 0s.' : 'Figures of the last minutes come in a moment.'),
    state.changes.length > 0 && h('section', { class: 'card', 'aria-label': 'Changes' }, h('h2', {}, 'Changes of the state'),
      h('ol', { class: 'changes' }, [...state.changes].reverse().slice(0, 12).map((c) => h('li', {}, h('time', { datetime: c.at, class: 'muted' }, clock(c.at)), h('span', {}, h('b', {}, c.state), c.reason ? [' ', h('code', {}, c.reason)] : null, h('span', { class: 'muted' }, ' – ' + visible(c.headline))))))),
  ];
}

function spans(all) {
  return (all ?? []).map((p) => {
    const inner = p.code ? h('code', {}, p.text) : p.bold ? h('b', {}, p.text) : p.text;
    return p.link ? h('a', { href: p.link, rel: 'noreferrer', target: '_blank' }, inner) : inner;
  });
}

function blocked(st) {
  const o = st.obstacle, more = state.obstacle;
  if (!o) return [headline(st), h('section', { class: 'card' }, h('h2', {}, 'Blocked'), h('p', {}, 'Nothing stands in the way.'))];
  const r = o.row;
  return [
    headline(st),
    h('section', { class: 'card' }, h('h2', {}, 'What it is'), h('dl', { class: 'facts' },
      h('dt', {}, 'Reason'), h('dd', {}, h('code', {}, o.reason)),
      r && [h('dt', {}, 'Row'), h('dd', {}, name(r.table), `, row ${r.number} of the transaction committing at `, h('code', {}, r.commit_lsn || '–')),
        r.event_id && [h('dt', {}, 'Event'), h('dd', {}, name(r.event_id, 80))],
        r.topic && [h('dt', {}, 'Topic'), h('dd', {}, name(r.topic, 80))],
        r.bytes ? [h('dt', {}, 'Record'), h('dd', {}, `${bytes(r.bytes)} (${r.bytes} bytes)`, more?.topic_limit && !r.limit ? [`; the topic takes ${bytes(more.topic_limit)} (${more.topic_limit} bytes, `, h('code', {}, 'max.message.bytes'), ')'] : null, r.limit ? [`; the limit is ${bytes(r.limit)} (`, h('code', {}, r.limit_of), ')'] : null)] : null],
      h('dt', {}, 'Since'), h('dd', {}, clock(o.since), ' (', ago(o.since), ')'),
      h('dt', {}, 'Attempts'), h('dd', {}, o.attempts ? `${o.attempts} failed` : 'the client goes on trying', o.next_try ? ', next ' + next(o.next_try) : '', acts() && [' ', h('button', { type: 'button', onclick: tryNow }, 'Try now')], state.said && h('span', { role: 'status' }, ' ' + state.said)),
      more?.entry && [h('dt', {}, 'Means'), h('dd', {}, spans(more.entry.means)), h('dt', {}, 'Look at'), h('dd', {}, spans(more.entry.look_at)),
        h('dt', {}, 'Do'), h('dd', {}, spans(more.entry.do)), h('dt', {}, 'Rows'), h('dd', {}, spans(more.entry.rows)),
        h('dt', {}, 'Runbook'), h('dd', {}, h('a', { href: more.entry.link, rel: 'noreferrer', target: '_blank' }, 'the entry in the documentation'))])),
    h('section', { class: 'card' }, h('h2', {}, 'Ways out'),
      more?.heals_by_itself && h('p', {}, 'It passes by itself; the relay goes on trying.'),
      (more?.ways ?? []).map((w, i) => h('div', { class: 'way' }, h('h3', {}, `${i + 1}. ${visible(w.title)}`),
        h('p', { class: 'tags' }, h('span', { class: 'tag' + (w.loses_rows === 'yes' ? ' loses' : '') }, 'loses rows: ' + w.loses_rows), h('span', { class: 'tag' }, w.restart ? 'restart needed' : 'no restart'), w.stopped && h('span', { class: 'tag' }, 'stop the relay first')),
        w.loses_rows === 'yes' ? h('details', {}, h('summary', {}, 'Show the command that gives rows up'), steps(w)) : steps(w, i === 0)))),
  ];
}

// spark is the hour of one name, as a small curve with its numbers for whoever does not see it.
function spark(kind, of, unit) {
  const H = state.flows[kind], values = H?.series[of]?.filter((v) => v !== null) ?? [];
  if (values.length < 2) return h('span', { class: 'muted' }, '–');
  const all = H.series[of], most = Math.max(...values) || 1, w = 120, t = 22;
  let d = '', pen = false;
  all.forEach((v, i) => {
    if (v === null) { pen = false; return; }
    d += (pen ? 'L' : 'M') + (i * w / (all.length - 1)).toFixed(1) + ' ' + (t - 1 - v / most * (t - 3)).toFixed(1) + (pen ? '' : 'h.01');
    pen = true;
  });
  const range = `between ${unit(Math.min(...values))} and ${unit(most)}`;
  return s('svg', { class: 'spark', viewBox: `0 0 ${w} ${t}`, width: w, height: t, role: 'img', 'aria-label': range }, s('title', {}, range), s('path', { class: 'line l1', d }));
}

const list = (label, heads, rows) => h('div', { class: 'wide', tabindex: '0', role: 'region', 'aria-label': label }, h('table', { class: 'list' },
  h('thead', {}, h('tr', {}, heads.map((t) => h('th', { scope: 'col', class: t.startsWith('#') ? 'num' : null }, t.replace('#', ''))))), h('tbody', {}, rows)));

function tables(st) {
  const all = state.tables?.tables ?? st.tables, live = new Map(st.tables.map((f) => [f.name, f]));
  return [
    h('section', { class: 'card' }, h('h1', { class: 'hidden' }, 'Tables and topics'), h('h2', {}, 'Tables'), list('Tables', ['Table', '#Rows read', '#a second', 'The hour', '#Rejected', 'Last row', 'Mapping'],
      all.map((f) => [live.get(f.name) ?? f]).map(([f]) => h('tr', {}, h('td', {}, name(f.name, 80)), h('td', { class: 'num' }, f.total.toLocaleString('en')), h('td', { class: 'num' }, count(f.per_second)), h('td', {}, spark('tables', f.name, (v) => count(v) + '/s')), h('td', { class: f.rejected ? 'num lv-warn' : 'num' }, (f.rejected ?? 0).toLocaleString('en')), h('td', {}, ago(f.last)),
        h('td', {}, h('button', { type: 'button', 'aria-label': 'Explain ' + f.name, onclick: () => explain(f.name) }, 'Explain')))))),
    Object.entries(state.explained).map(([of, e]) => h('section', { class: 'card' }, h('div', { class: 'row' }, h('h2', {}, 'How ', name(of), ' is mapped'), state.about?.payloads && state.about.role === 'operator' && !e.loading && h('button', { type: 'button', class: 'plain', onclick: () => explain(of, true) }, 'Show the record of the newest row'), h('button', { type: 'button', class: 'plain push', 'aria-label': 'Close ' + of, onclick: () => { delete state.explained[of]; draw(); } }, 'Close')), explanation(e))),
    h('section', { class: 'card' }, h('h2', {}, 'Topics'), st.topic_rates.length === 0 ? h('p', { class: 'muted' }, 'Nothing was acknowledged yet.') : list('Topics', ['Topic', '#Records', '#a second', 'The hour', 'Last record'],
      [...st.topic_rates].sort((a, b) => b.per_second - a.per_second).map((f) => h('tr', {}, h('td', {}, name(f.name, 80)), h('td', { class: 'num' }, f.total.toLocaleString('en')), h('td', { class: 'num' }, count(f.per_second)), h('td', {}, spark('topics', f.name, (v) => count(v) + '/s')), h('td', {}, ago(f.last)))))),
  ];
}

const decided = (d) => d ? [h('code', {}, d.value ?? String(d)), d.origin ? h('span', { class: 'muted' }, ` (${d.origin}${d.at ? ', ' + d.at : ''})`) : null] : '–';

function explanation(e) {
  if (e.loading) return h('p', { class: 'muted' }, 'Asking PostgreSQL …');
  if (e.problem) return h('p', { class: 'lv-bad' }, e.problem);
  const t = e.tables?.[0] ?? e;
  return [t.error && h('p', { class: 'lv-bad' }, t.error), h('dl', { class: 'facts' },
    h('dt', {}, 'Preset'), h('dd', {}, decided(t.preset)), h('dt', {}, 'Topic'), h('dd', {}, decided(t.topic)), h('dt', {}, 'Key'), h('dd', {}, decided(t.key_format)), h('dt', {}, 'Value'), h('dd', {}, decided(t.value_format)),
    h('dt', {}, 'Headers'), h('dd', {}, (t.headers ?? []).join(', ') || '–'), h('dt', {}, 'Ignored'), h('dd', {}, (t.ignored ?? []).join(', ') || 'no column')),
  (t.columns ?? []).length > 0 && list('Columns', ['Column', 'Type', 'Role', 'Decided by'], t.columns.map((c) => h('tr', {}, h('td', {}, name(c.name)), h('td', {}, c.type), h('td', {}, (c.roles ?? []).join(', ') || '–'), h('td', { class: 'muted' }, c.origin ?? '')))),
  t.record && recordOf(t.record), t.note && h('p', { class: 'muted' }, t.note), t.problem && h('p', { class: 'lv-bad' }, t.problem),
  (t.warnings ?? []).map((w) => h('p', { class: 'lv-warn' }, '▲ ' + w))];
}

function recordOf(r) {
  const shown = (v) => v === null || v === undefined ? 'null' : name(typeof v === 'string' ? v : JSON.stringify(v), 20000);
  return h('dl', { class: 'facts', 'aria-label': 'Record' }, h('dt', {}, 'Record of'), h('dd', {}, name(r.from, 200)), h('dt', {}, 'Topic'), h('dd', {}, name(r.topic, 200)), h('dt', {}, 'Key'), h('dd', {}, shown(r.key)),
    h('dt', {}, 'Headers'), h('dd', {}, (r.headers ?? []).map((x) => h('div', {}, name(x.name), ': ', shown(x.value)))), h('dt', {}, 'Value'), h('dd', {}, shown(r.value)));
}

function shards(st) {
  const worst = ['stopping', 'blocked', 'reconnecting', 'starting', 'streaming', 'standby'];
  const all = st.shards?.length ? [...st.shards].sort((a, b) => worst.indexOf(a.state) - worst.indexOf(b.state)) : [st];
  return [headline(st), h('section', { class: 'card' }, h('h2', {}, st.shards?.length ? 'Shards of this process, the worst first' : 'One slot; the outbox is not divided'),
    list('Shards', ['Slot', 'State', '#Behind', '#WAL not confirmed', 'The hour', '#WAL kept', '#In flight', '#Acknowledged', 'WAL lasts'], all.map((one) => h('tr', {},
      h('td', {}, name(one.slot)), h('td', {}, h('span', { class: 'lv-' + level(one) }, levels[level(one)][0] + ' '), one.state, one.reason ? [' ', h('code', {}, one.reason)] : null),
      h('td', { class: 'num' }, one.lag_seconds === null ? 'not known' : duration(one.lag_seconds)), h('td', { class: 'num' }, one.lag_bytes === null ? 'not known' : bytes(one.lag_bytes)), h('td', {}, spark('shards', one.slot, bytes)), h('td', { class: 'num' }, bytes(one.retained_wal_bytes)),
      h('td', { class: 'num' }, count(one.in_flight_events)), h('td', { class: 'num' }, one.events_published_total.toLocaleString('en')), h('td', {}, walLasts(one)[0]))))),
  h('p', { class: 'muted' }, 'This page is of this process alone. Another process with other shards, or one that stands by, has its own.')];
}

function checkPage() {
  const c = state.check, findings = c?.report?.findings ?? [];
  const order = ['fail', 'warn', 'ok'], shape = { fail: '■', warn: '▲', ok: '●' };
  return h('section', { class: 'card' }, h('h1', { class: 'hidden' }, 'Check'), h('div', { class: 'row' }, h('h2', {}, 'Check'), h('span', { class: 'muted' }, c?.at ? `of ${clock(c.at)}, ${ago(c.at)}: ${c.report.ok} ok, ${c.report.warn} warn, ${c.report.fail} fail` : 'none was made yet'),
    h('button', { type: 'button', class: 'primary push', disabled: state.checking, onclick: runCheck }, state.checking ? 'Looking …' : 'Check now')),
  h('p', { class: 'muted' }, 'Compares PostgreSQL, Kafka and the tables with what streaming needs. It changes nothing.'), state.problem && h('p', { class: 'lv-bad', role: 'alert' }, state.problem),
  findings.length > 0 && list('Findings', ['Result', 'Check', 'Found, and what to do'], [...findings].sort((a, b) => order.indexOf(a.level) - order.indexOf(b.level)).map((f) => h('tr', {},
    h('td', { class: 'lv-' + f.level }, shape[f.level] + ' ' + f.level), h('td', {}, h('code', {}, f.check)), h('td', {}, name(f.seen, 2000), f.advice && h('p', {}, h('b', {}, '→ '), name(f.advice, 2000)))))));
}

function config() {
  const text = state.configuration ?? '', chosen = (l) => !state.chosenOnly || !/# default$/.test(l);
  const lines = text.split('\n').filter((l) => chosen(l) && l.toLowerCase().includes(state.filter.toLowerCase()));
  return h('section', { class: 'card' }, h('h1', { class: 'hidden' }, 'Configuration'), h('div', { class: 'row' }, h('h2', {}, 'Configuration in effect'), filterBox('key or value'),
    h('label', {}, h('input', { type: 'checkbox', checked: state.chosenOnly, onchange: (e) => { state.chosenOnly = e.target.checked; draw(); } }), ' only what is not the default')),
  h('p', { class: 'muted' }, 'Each value with its origin; secrets as ***.'), state.problem && h('p', { class: 'lv-bad', role: 'alert' }, state.problem),
  h('pre', { class: 'page', tabindex: '0' }, lines.map((l) => h('span', { class: /# default$/.test(l) ? 'default' : null }, visible(l) + '\n'))));
}

const filterBox = (what) => h('input', { type: 'search', placeholder: what, 'aria-label': 'Filter by ' + what, 'data-filter': true, class: 'push', oninput: (e) => { state.filter = e.target.value; draw(); } });

function log() {
  const order = ['trace', 'debug', 'info', 'warn', 'error'], least = order.indexOf(state.level), wanted = state.filter.toLowerCase();
  const shown = state.lines.filter((l) => (order.indexOf(l.level) < 0 || order.indexOf(l.level) >= least) && JSON.stringify(l.line).toLowerCase().includes(wanted)).slice(-300).reverse();
  const skip = new Set(['time', 'level', 'msg', 'pipeline']);
  return h('section', { class: 'card' }, h('h1', { class: 'hidden' }, 'Log'), h('div', { class: 'row' }, h('h2', {}, 'Log'), h('span', { class: 'muted' }, `the newest first, ${shown.length} of the last ${state.lines.length} lines`), filterBox('text'),
    h('label', {}, h('span', { class: 'hidden' }, 'least level'), h('select', { onchange: (e) => { state.level = e.target.value; draw(); } }, ['debug', 'info', 'warn', 'error'].map((l) => h('option', { value: l, selected: l === state.level }, l))))),
  state.problem && h('p', { class: 'lv-bad', role: 'alert' }, state.problem),
  h('ol', { class: 'log' }, shown.map((l) => h('li', {}, h('time', { class: 'muted', datetime: l.line.time }, clock(l.line.time)), h('b', { class: 'lv-' + l.level }, l.level),
    h('span', {}, name(l.line.msg ?? '', 1500), h('span', { class: 'muted' }, Object.entries(l.line).filter(([k]) => !skip.has(k)).map(([k, v]) => [' ', k, '=', name(typeof v === 'object' ? JSON.stringify(v) : v, 400)])))))));
}

// --- dead letters ----------------------------------------------------------------------------

const placeOf = (l) => l.partition + '/' + l.offset;

function lettersPage() {
  const all = state.letters, w = state.wanted, options = (list, of) => [h('option', { value: '', selected: !of }, 'all'), (list ?? []).map((c) => h('option', { value: c.name, selected: c.name === of }, visible(c.name).slice(0, 60) + ` (${c.count})`)), of && !(list ?? []).some((c) => c.name === of) ? h('option', { value: of, selected: true }, visible(of).slice(0, 60)) : null];
  const choose = (label, key, list) => h('label', {}, label + ' ', h('select', { name: key, onchange: (e) => want({ [key]: e.target.value }) }, options(list, w[key])));
  return [
    h('section', { class: 'card' }, h('h1', { class: 'hidden' }, 'Dead letters'), h('div', { class: 'row' }, h('h2', {}, 'Dead letters'),
      all && h('span', { class: 'muted' }, name(all.topic, 60), ` · read ${clock(all.read_at)} · ${all.waiting} waiting, ${all.total - all.waiting} done`), operatorLine()),
    h('p', { class: 'muted' }, 'Rows that could not be delivered and were set aside. They wait here until somebody re-drives or discards them; nothing passes by itself.'),
    state.problem && h('p', { class: 'lv-bad', role: 'alert' }, state.problem),
    all && h('div', { class: 'row filters' }, choose('reason', 'reason', all.reasons), choose('table', 'table', all.tables), choose('topic', 'topic', all.topics),
      h('label', {}, 'state ', h('select', { name: 'state', onchange: (e) => want({ state: e.target.value }) }, ['waiting', 'sent', 'discarded', 'all'].map((o) => h('option', { value: o, selected: o === w.state }, o)))),
      h('button', { type: 'button', onclick: () => loadLetters() }, 'Read again'), all.foreign > 0 && h('span', { class: 'lv-warn' }, `▲ ${all.foreign} records of somebody else are in the topic`)),
    all && (all.letters.length === 0 ? h('p', {}, all.waiting === 0 && w.state === 'waiting' ? 'No dead letter waits.' : 'None matches.') : letterList(all)),
    all?.next && h('p', {}, h('button', { type: 'button', onclick: () => loadLetters(all.next) }, `Show more: ${all.letters.length} of ${all.matched}`))),
    state.look && lookAt(state.look), all && doing(all), state.job && jobPanel(state.job),
  ];
}

function operatorLine() {
  const a = state.about;
  if (a?.role === 'operator') return h('span', { class: 'push muted' }, `operator${a.until ? ': signed in until ' + clock(a.until) : ''}`);
  return a?.operators && h('a', { class: 'push', href: '/login?next=dead-letters', onclick: (e) => { e.preventDefault(); go('/login?next=dead-letters'); } }, 'Sign in as operator');
}

function letterList(all) {
  return list('Letters', ['Choose', 'Place', 'Set aside', 'Reason', 'Table', 'Topic', 'LSN/row', 'Event', '#Value', 'State', 'More'], all.letters.map((l) => h('tr', { },
    h('td', {}, l.state === 'waiting' && acts() ? h('input', { type: 'checkbox', 'aria-label': 'Choose ' + placeOf(l), checked: state.chosen.has(placeOf(l)), onchange: (e) => { e.target.checked ? state.chosen.add(placeOf(l)) : state.chosen.delete(placeOf(l)); state.plan = null; draw(); } }) : '–'),
    h('td', { class: 'mono' }, placeOf(l)), h('td', {}, clock(l.time)), h('td', { class: l.reason.length < 30 ? 'nowrap' : null }, h('code', {}, name(l.reason, 40))), h('td', {}, name(l.table, 40)), h('td', {}, l.topic ? name(l.topic, 40) : '–'),
    h('td', { class: 'mono' }, `${l.lsn}/${l.seq}`), h('td', { class: 'mono' }, l.event_id ? name(l.event_id, 14) : '–'), h('td', { class: 'num' }, bytes(l.value_bytes)), h('td', { class: 'nowrap' }, l.state),
    h('td', {}, h('button', { type: 'button', 'aria-label': 'Look at ' + placeOf(l), onclick: () => look(l) }, 'Look')))));
}

function lookAt(l) {
  const r = l.record, shown = (v) => name(typeof v === 'string' ? v : JSON.stringify(v), 20000);
  const hidden = '●●●●';
  return h('section', { class: 'card', 'aria-label': 'Letter ' + placeOf(l) }, h('div', { class: 'row' }, h('h2', {}, 'Letter ' + placeOf(l)), h('button', { type: 'button', class: 'plain push', onclick: () => { state.look = null; draw(); } }, 'Close')),
    h('dl', { class: 'facts' }, h('dt', {}, 'Says'), h('dd', {}, name(l.message, 2000)), h('dt', {}, 'Row'), h('dd', {}, name(l.table), `, row ${l.seq} of the transaction committing at `, h('code', {}, l.lsn), ', from ', name(l.source)),
      h('dt', {}, 'Event'), h('dd', {}, l.event_id ? name(l.event_id, 200) : 'not known'), h('dt', {}, 'Topic'), h('dd', {}, l.topic ? name(l.topic, 200) : 'none could be made'),
      l.missing?.length && [h('dt', {}, 'Missing'), h('dd', {}, l.missing.join(', ') + ': a re-drive reads it from the table')],
      h('dt', {}, 'Headers'), h('dd', {}, r ? (r.headers ?? []).map((x) => h('div', {}, name(x.name), ': ', shown(x.value))) : (l.header_names.length ? l.header_names.map((x, i) => [i ? ', ' : '', name(x)]) : 'none')),
      h('dt', {}, 'Key'), h('dd', {}, r ? shown(r.key) : hidden), h('dt', {}, 'Value'), h('dd', {}, r ? ('value' in r ? shown(r.value) : 'not in the letter: it was too large') : hidden + ' ' + bytes(l.value_bytes),
        !r && state.about?.payloads && state.about.role === 'operator' && [' ', h('button', { type: 'button', onclick: () => look(l, true) }, 'Show values'), h('span', { class: 'muted' }, ' this is written to the log')])));
}

const program = () => 'cdc-relay' + (state.about?.file ? " --config '" + state.about.file.replaceAll("'", "'\\''") + "'" : '');

// causes are what the waiting letters failed of: sent again before it is corrected, they fail again.
function causes(all) {
  const waits = all.waiting > 0 ? (all.reasons ?? []).filter((r) => r.name !== 'parked') : [];
  return waits.length ? [h('p', {}, h('b', {}, 'Correct the cause first'), ', or they fail again. Look at a letter: it says what it failed of, and what to raise, create or correct.')] : [];
}

function doing(all) {
  const a = state.about, p = state.plan, n = state.chosen.size;
  if (!acts()) {
    const w = state.wanted, flags = ['reason', 'table', 'topic'].filter((k) => w[k]).map((k) => ` --${k} '${String(w[k]).replaceAll("'", "'\\''")}'`).join('');
    return h('section', { class: 'card', 'aria-label': 'What can be done' }, h('h2', {}, 'What can be done'), h('p', {}, a?.actions ? 'Sign in as operator to re-drive or discard them here, or run:' : 'This page changes nothing (http.console.actions is false). In a terminal:'),
      ...causes(all), h('p', {}, 'See what would be sent, then send it:'), command(program() + ' deadletter redrive' + (flags || ' --all')), command(program() + ' deadletter redrive' + (flags || ' --all') + ' --yes'));
  }
  const busy = state.job?.state === 'running';
  return h('section', { class: 'card', 'aria-label': 'What can be done' }, h('h2', {}, 'What can be done'), causes(all),
    h('p', { class: 'row' }, h('button', { type: 'button', class: p ? null : 'primary', disabled: state.planning || busy || (!n && !all.matched), onclick: makePlan }, state.planning ? 'Looking …' : n ? `Plan for the ${n} chosen` : 'Plan for all that match and wait'),
      h('span', { class: 'muted' }, 'A plan changes nothing. It looks at each letter and says what would happen.')),
    p && planPanel(p, busy));
}

function planPanel(p, busy) {
  const r = p.redrive, d = p.discard, words = state.words.trim();
  return h('div', { class: 'way', 'aria-label': 'Plan' },
    h('p', {}, h('b', {}, r.letters === 0 ? 'Nothing of this relay waits.' : `${r.letters} ${r.letters === 1 ? 'letter' : 'letters'} of ${r.keys} ${r.keys === 1 ? 'key' : 'keys'} would be sent, the oldest row first.`),
      r.along > 0 && ` ${r.along} of them because they share a key with one that was chosen: otherwise they would be overtaken.`, r.would_fail > 0 && h('span', { class: 'lv-bad' }, ` ${r.would_fail} would fail, see below.`),
      p.other_sources > 0 && ` ${p.other_sources} of other relays are left out: see cdc-relay deadletter redrive --source.`),
    r.groups.length > 0 && list('Keys of the plan', ['Table', 'Topic', '#Letters', '#Chosen', '#From table', 'Rows', 'Result'], r.groups.map((g) => h('tr', {}, h('td', {}, name(g.table, 40)), h('td', {}, g.topic ? name(g.topic, 40) : '–'), h('td', { class: 'num' }, g.letters), h('td', { class: 'num' }, g.selected), h('td', { class: 'num' }, g.incomplete),
      h('td', { class: 'mono' }, g.from === g.through ? g.from : `${g.from} to ${g.through}`), h('td', { class: g.error ? 'lv-bad' : null }, g.error ? name('would fail: ' + g.error, 2000) : 'planned', g.changed ? ` ▲ ${g.changed} rows changed since` : '', g.recoded ? ` ▲ ${g.recoded} encoded by a schema that is gone` : '', g.unproven ? ` ▲ ${g.unproven} rows found by event id alone` : '')))),
    r.keys > r.groups.length && h('p', { class: 'muted' }, `and ${r.keys - r.groups.length} more keys`),
    r.letters > 0 && h('div', {}, h('p', {}, 'Type ', h('code', {}, r.words), r.letters === 1 ? ' to send it, or ' : ' to send them, or ', h('code', {}, d.words), ` to give ${d.letters === 1 ? 'the selected one' : 'the ' + d.letters + ' that were selected'} up. `, h('b', { class: 'lv-bad' }, 'What is discarded, consumers never get.'), d.left_of_keys > 0 && ` ${d.left_of_keys} of the same keys go on waiting.`),
      h('p', { class: 'row' }, h('label', {}, 'Words ', h('input', { name: 'words', autocomplete: 'off', spellcheck: 'false', 'data-plan': p.id, oninput: (e) => { state.words = e.target.value; draw(); } })),
        h('button', { type: 'button', class: 'primary', disabled: busy || words !== r.words, onclick: () => act('redrive') }, 'Re-drive'), h('button', { type: 'button', disabled: busy || words !== d.words, onclick: () => act('discard') }, 'Discard'),
        h('span', { class: 'muted' }, `valid until ${clock(p.expires)}`))));
}

function jobPanel(j) {
  const shape = { running: '…', done: '●', failed: '■', cancelled: '▲' }, of = { done: 'ok', failed: 'bad', cancelled: 'warn' }[j.state];
  return h('section', { class: 'card', 'aria-label': 'Job' }, h('div', { class: 'row' }, h('h2', {}, j.action === 'discard' ? 'Discard' : 'Re-drive'), h('span', { class: of ? 'lv-' + of : null, role: 'status' }, `${shape[j.state]} ${j.state}`), h('span', { class: 'muted' }, 'began ' + clock(j.started)),
    j.state === 'running' && acts() && h('button', { type: 'button', class: 'push', onclick: cancelJob }, 'Stop after this key')),
  h('progress', { max: String(Math.max(1, j.letters)), value: j.done, 'aria-label': 'letters done' }), h('p', {}, `${j.done} of ${j.letters} done`, j.action === 'redrive' ? `, ${j.records} records acknowledged` : '', j.failed ? `, ${j.failed} not sent: they go on waiting` : '', j.text ? h('span', { class: 'muted' }, ' · ' + visible(j.text)) : null),
  j.groups.some((g) => g.error) && list('What failed', ['Table', 'Topic', 'Why'], j.groups.filter((g) => g.error).map((g) => h('tr', {}, h('td', {}, name(g.table, 40)), h('td', {}, name(g.topic, 40)), h('td', { class: 'lv-bad' }, name(g.error, 2000))))));
}

function want(part) {
  Object.assign(state.wanted, part);
  state.chosen.clear();
  Object.assign(state, { plan: null, words: '' });
  loadLetters();
}

function openLetters() {
  loadLetters();
  followJob();
}

async function loadLetters(after) {
  const query = new URLSearchParams(Object.entries(state.wanted).filter(([, v]) => v));
  if (after) query.set('after', after);
  try {
    const got = await ask('/api/v1/dead-letters?' + query);
    if (after) got.letters = [...state.letters.letters, ...got.letters];
    state.letters = got;
    state.waiting = got.waiting;
    state.problem = null;
    const waiting = new Set(got.letters.filter((l) => l.state === 'waiting').map(placeOf));
    for (const one of state.chosen) if (!waiting.has(one)) state.chosen.delete(one);
    draw();
  } catch (p) { trouble(p); }
}

async function look(l, values) {
  try { state.look = await ask(`/api/v1/dead-letters/${l.partition}/${l.offset}${values ? '?values=true' : ''}`); state.problem = null; draw(); } catch (p) { trouble(p); }
}

async function makePlan() {
  Object.assign(state, { planning: true, plan: null, words: '', problem: null });
  draw();
  const { reason, table, topic } = state.wanted;
  const letters = [...state.chosen].map((at) => { const [partition, offset] = at.split('/').map(Number); return { partition, offset }; });
  try { state.plan = await post('/api/v1/dead-letters/plans', letters.length ? { letters } : { reason, table, topic }); } catch (p) { state.problem = p.message; }
  state.planning = false;
  draw();
  const box = document.querySelector('[data-plan]');
  if (box) { box.value = ''; box.focus(); }
}

async function act(verb) {
  const p = state.plan;
  state.problem = null;
  try { state.job = await post(`/api/v1/dead-letters/plans/${p.id}/${verb}`, { words: state.words }); } catch (problem) { state.problem = problem.message; }
  Object.assign(state, { plan: null, words: '', look: null });
  state.chosen.clear();
  draw();
  if (state.job) followJob(); else loadLetters();
}

let following = 0;
async function followJob() {
  clearTimeout(following);
  try { state.job = (await ask('/api/v1/jobs/latest')).job; } catch { /* not for everybody */ }
  draw();
  if (location.pathname !== '/dead-letters') return;
  if (state.job?.state === 'running') following = setTimeout(followJob, 700);
  else if (state.job) loadLetters();
}

async function cancelJob() {
  try { await ask('/api/v1/jobs/' + state.job.id, { method: 'DELETE', headers: formToken() }); followJob(); } catch (p) { trouble(p); }
}

async function tryNow() {
  try { state.said = (await post('/api/v1/retry')).tried ? 'It tries again.' : 'Nothing waits at this moment.'; } catch (p) { state.said = p.message; }
  draw();
  setTimeout(() => { state.said = null; draw(); }, 5000);
}

// --- the rows as they pass -------------------------------------------------------------------

function tailPage(st) {
  const choose = (label, key, flows) => h('label', {}, label + ' ', h('select', { name: key, onchange: (e) => { state.only[key] = e.target.value; openTail(); } }, h('option', { value: '', selected: !state.only[key] }, 'all'),
    flows.map((f) => h('option', { value: f.name, selected: f.name === state.only[key] }, visible(f.name).slice(0, 60)))));
  const p = state.passed;
  return h('section', { class: 'card' }, h('h1', { class: 'hidden' }, 'Tail'), h('div', { class: 'row' }, h('h2', {}, 'Delivered rows as they pass'), h('span', { class: 'muted' }, p === null ? 'waiting …' : p.passed === 0 ? 'no row in the last second' : `${p.shown} of ${p.passed.toLocaleString('en')} shown in the last second`),
    h('span', { class: 'push row filters' }, choose('table', 'table', st.tables), choose('topic', 'topic', st.topic_rates))),
  h('p', { class: 'muted' }, 'The first row of each table and topic in a tenth of a second, 50 a second at most. No key and no value: equal keys have equal hashes, until the relay ends. Press p to hold.'),
  state.problem && h('p', { class: 'lv-bad', role: 'alert' }, state.problem),
  state.rows.length > 0 && list('Rows', ['Time', 'Table', 'Topic', 'Key hash', 'Event', '#Bytes', '#Since commit'], state.rows.map((l) => h('tr', {}, h('td', {}, new Date(l.time).toISOString().slice(11, 23)), h('td', {}, name(l.table, 40)), h('td', {}, name(l.topic, 40)),
    h('td', { class: 'mono' }, l.key_hash || '–'), h('td', { class: 'mono' }, l.event_id ? name(l.event_id, 36) : '–'), h('td', { class: 'num' }, bytes(l.value_bytes)), h('td', { class: 'num' }, l.age_ms === null ? '–' : duration(l.age_ms / 1000))))));
}

let passing = null;
function openTail() {
  passing?.close();
  Object.assign(state, { rows: [], passed: null });
  passing = new EventSource('/api/v1/tail?' + new URLSearchParams(Object.entries(state.only).filter(([, v]) => v)));
  passing.addEventListener('rows', (e) => {
    if (state.held) return;
    const got = JSON.parse(e.data);
    state.passed = { shown: got.lines.length, passed: got.passed };
    state.rows = [...got.lines.reverse(), ...state.rows].slice(0, 100);
    draw();
  });
  passing.onerror = async () => {
    if (passing?.readyState !== EventSource.CLOSED) return;
    const answer = await fetch('/api/v1/status').catch(() => null);
    state.problem = answer?.status === 401 ? 'sign in first' : 'The relay does not send rows: too many pages are open, or its address can be reached from other machines and has no token.';
    draw();
  };
  draw();
}

function login() {
  return h('main', { id: 'main' }, h('section', { class: 'card login' }, h('h1', {}, 'Sign in'), h('p', { class: 'muted' }, 'With the token of this relay: the content of ', h('code', {}, 'http.token_file'), state.about?.operators ? [', or, to act, of ', h('code', {}, 'http.console.operator_token_file')] : null, '.'),
    h('form', { onsubmit: signIn }, h('input', { class: 'hidden', name: 'username', autocomplete: 'username', value: 'cdc-relay', tabindex: '-1', 'aria-hidden': 'true', readonly: true }), h('label', {}, 'Token ', h('input', { type: 'password', name: 'token', autocomplete: 'current-password', required: true, autofocus: true })), h('button', { class: 'primary' }, 'Sign in')),
    state.login && h('p', { class: 'lv-bad', role: 'alert' }, state.login)));
}

async function signIn(e) {
  e.preventDefault();
  const field = e.currentTarget.elements.token;
  try {
    await post('/login', { token: field.value });
    field.value = '';
    state.login = null;
    state.about = await ask('/api/v1/console');
    const wanted = '/' + (new URLSearchParams(location.search).get('next') ?? '');
    go(pages[wanted] ? wanted : '/');
    listen();
  } catch (problem) {
    state.login = problem.message;
    draw();
  }
}

async function begun() {
  try { state.status = await ask('/api/v1/status'); state.at = Date.now(); } catch (problem) { state.failed = problem.message; }
  draw();
  loadHistory();
  listen();
}

async function signOut() {
  await post('/logout');
  source?.close();
  Object.assign(state, { status: null, history: null, changes: [], lines: [], configuration: null, check: null, explained: {}, obstacle: null, letters: null, look: null, plan: null, job: null });
  state.chosen.clear();
  try { state.about = await ask('/api/v1/console'); } catch { /* the next page asks again */ }
  if (!state.about?.token) { begun(); go('/'); return; } // whoever looks needs no token here
  go('/login');
}

// --- the frame -------------------------------------------------------------------------------

const stale = () => state.status && Date.now() - state.at > 5000;

function frame() {
  if (location.pathname === '/login') return login();
  const st = state.status;
  if (!st) return h('main', { id: 'main' }, h('section', { class: 'card' }, h('h1', {}, 'cdc-relay'), h('p', { class: 'muted' }, state.failed ?? 'Asking the relay …')));
  const age = Math.max(0, Math.floor((Date.now() - state.at) / 1000)), here = pages[location.pathname] ?? pages['/'];
  return [
    h('a', { class: 'skip', href: '#main' }, 'To the content'),
    h('header', { class: 'top' }, h('div', { class: 'bar' },
      h('a', { class: 'brand', href: '/' }, h('img', { src: '/assets/icon.svg', alt: '' }), 'cdc-relay'),
      h('p', { class: 'who' }, h('span', {}, h('b', {}, name(st.pipeline, 40))), state.about?.source && h('span', {}, name(state.about.source, 60)), h('span', {}, 'slot ', h('b', {}, name(st.slot, 40))), h('span', {}, st.state === 'standby' ? 'standing by' : 'active'), h('span', {}, st.version), h('span', {}, state.held ? 'held: press p' : `data ${age} s old`)),
      h('nav', { 'aria-label': 'Pages' }, Object.entries(pages).map(([path, p]) => (path !== '/shards' || st.shards?.length) && h('a', { href: path, 'aria-current': p === here ? 'page' : null }, p.label, path === '/blocked' && st.obstacle ? h('span', { class: 'mark' }, ' ■') : null, path === '/dead-letters' && (state.waiting ?? st.dead_letters_total) + st.parked_keys > 0 ? h('span', { class: 'mark' }, state.waiting ? ` ▲ ${count(state.waiting)}` : ' ▲') : null))))),
    h('main', { id: 'main', tabindex: '-1' }, stale() && h('p', { class: 'stale-note', role: 'status' }, `No answer for ${age} s: this is what was known last. Is the relay running?`), state.crowded && h('p', { class: 'stale-note', role: 'status' }, 'As many pages of this console are open as it feeds: 16, or 4 of one address. This one asks every 5 s instead, until another is closed.'), here.view(st)),
    h('footer', {}, h('span', {}, 'This process only. '), h('a', { href: '/api/v1/openapi.json' }, 'API'), h('a', { href: '/metrics' }, 'Metrics'),
      h('button', { type: 'button', class: 'plain', onclick: theme }, 'Light or dark'), h('button', { type: 'button', class: 'plain', onclick: help }, 'Keys (?)'), state.about?.signed_in && h('button', { type: 'button', class: 'plain', onclick: signOut }, 'Sign out')),
  ];
}

const app = document.getElementById('app');

function draw() {
  const view = h('div', { id: 'app' }, frame());
  merge(app, view);
  const st = state.status;
  if (!st || location.pathname === '/login') { document.title = 'cdc-relay'; return; }
  document.title = `${levels[level(st)][0]} ${st.headline.slice(0, 60)} – ${st.pipeline}`;
  icon(level(st));
  announce(st.headline);
}

function icon(of) {
  const colour = { ok: '%23229a5b', warn: '%23c98500', bad: '%23c92a20' }[of];
  const shape = { ok: "%3Ccircle cx='16' cy='16' r='12'", warn: "%3Cpath d='M16 3l14 26H2z'", bad: "%3Crect x='4' y='4' width='24' height='24' rx='3'" }[of];
  const href = `data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 32 32'%3E${shape} fill='${colour}'/%3E%3C/svg%3E`;
  const link = document.querySelector('link[rel=icon]');
  if (link.getAttribute('href') !== href) link.setAttribute('href', href);
}

// What a screen reader is told, at most every ten seconds.
const spoken = h('p', { class: 'hidden', 'aria-live': 'polite' });
let spokeAt = 0, spokeOf = '';
function announce(text) {
  const kind = state.status.state + state.status.reason;
  if (kind === spokeOf || Date.now() - spokeAt < 10000) return;
  [spokeAt, spokeOf] = [Date.now(), kind];
  spoken.textContent = text;
}

function theme() {
  const dark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  document.documentElement.dataset.theme = dark ? 'light' : 'dark';
  remember('theme', document.documentElement.dataset.theme);
}
function remember(key, value) { try { localStorage.setItem('cdc-relay.' + key, value); } catch { /* a browser that keeps nothing */ } }
function remembered(key) { try { return localStorage.getItem('cdc-relay.' + key); } catch { return null; } }

const dialog = h('dialog', { 'aria-labelledby': 'keys' });
function help() {
  const off = h('input', { type: 'checkbox', onchange: (e) => remember('keys', e.target.checked ? 'off' : 'on') });
  off.checked = remembered('keys') === 'off';
  dialog.replaceChildren(h('h2', { id: 'keys' }, 'Keys'), h('dl', { class: 'facts' },
    Object.values(pages).map((p) => [h('dt', {}, h('kbd', {}, 'g'), ' ', h('kbd', {}, p.key)), h('dd', {}, 'page ' + p.label)]),
    [['j', 'next row'], ['k', 'row before'], ['c', 'copy the first way out'], ['p', 'hold, or go on with, the updates'], ['/', 'filter'], ['?', 'this help']].map(([k, t]) => [h('dt', {}, h('kbd', {}, k)), h('dd', {}, t)])),
  h('p', {}, h('label', {}, off, ' keys off, except Escape')), h('p', {}, h('button', { type: 'button', class: 'primary', onclick: () => dialog.close() }, 'Close')));
  dialog.showModal();
}

// step moves the focus to the button of the next row.
function step(by) {
  const rows = [...document.querySelectorAll('table.list tbody tr')].map((r) => r.querySelector('td button')).filter(Boolean);
  const at = rows.indexOf(document.activeElement);
  rows[Math.max(0, Math.min(rows.length - 1, at < 0 ? 0 : at + by))]?.focus();
}

let lead = 0;
document.addEventListener('keydown', (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || dialog.open || remembered('keys') === 'off' || /^(INPUT|SELECT|TEXTAREA)$/.test(e.target.nodeName)) return;
  if (Date.now() - lead < 1500) {
    lead = 0;
    const found = Object.entries(pages).find(([, p]) => p.key === e.key);
    if (found) { e.preventDefault(); go(found[0]); }
    return;
  }
  if (e.key === 'g') lead = Date.now();
  else if (e.key === '?') help();
  else if (e.key === 'p') { state.held = !state.held; draw(); }
  else if (e.key === 'j' || e.key === 'k') step(e.key === 'j' ? 1 : -1);
  else if (e.key === 'c') { const button = document.querySelector('[data-copy]'); if (button) copy(button.getAttribute('data-copy')); }
  else if (e.key === '/') { const box = document.querySelector('[data-filter]'); if (box) { e.preventDefault(); box.focus(); } }
});

document.addEventListener('click', (e) => {
  const link = e.target.closest?.('a[href]');
  if (!link || e.ctrlKey || e.metaKey || e.shiftKey || e.button !== 0 || !pages[link.getAttribute('href')]) return;
  e.preventDefault();
  go(link.getAttribute('href'));
});
addEventListener('popstate', opened);

function go(path) {
  if (path !== location.pathname + location.search) history.pushState(null, '', path);
  opened();
  if (location.pathname !== '/login') document.getElementById('main')?.focus({ preventScroll: true });
  scrollTo(0, 0);
}

function opened() {
  if (location.pathname !== '/tail') { passing?.close(); passing = null; }
  Object.assign(state, { filter: '', problem: null });
  draw();
  const box = document.querySelector('[data-filter]');
  if (box) box.value = '';
  pages[location.pathname]?.load?.();
}

// --- what is asked ---------------------------------------------------------------------------

const trouble = (problem) => { state.problem = problem.message; draw(); };

async function loadHistory() {
  if (!state.about?.history_seconds) return;
  const seconds = Math.min(state.range, state.about.history_seconds), step = seconds <= 900 ? '1s' : '10s';
  const since = new Date(Date.now() - seconds * 1000).toISOString().slice(0, 19) + 'Z';
  try {
    const got = await ask(`/api/v1/history?step=${step}&since=${since}`);
    state.history = got;
    state.changes = got.changes;
    state.loaded = Date.now();
  } catch (problem) { state.failed = problem.message; }
  draw();
}

// loadWaiting asks how many dead letters wait, while somebody looks: a count since the start does not say it.
async function loadWaiting() {
  const more = state.status?.dead_letters_total !== state.asideWas, began = Date.now();
  if (!state.about?.dead_letters || document.hidden || began - state.waitingAt < Math.max(more ? 15000 : 60000, state.waitingTook * 60)) return;
  Object.assign(state, { waitingAt: began, asideWas: state.status?.dead_letters_total });
  try { state.waiting = (await ask('/api/v1/dead-letters?limit=1')).waiting; draw(); } catch { /* not for everybody, or the brokers are away */ }
  state.waitingTook = Date.now() - began; // of a large topic not often
}

async function loadObstacle() {
  state.obstacleAt = Date.now();
  try { state.obstacle = await ask('/api/v1/obstacle'); } catch { /* the next one asks again */ }
  draw();
}
async function loadTables() { try { state.tables = await ask('/api/v1/tables'); draw(); } catch (p) { trouble(p); } }
async function loadFlows(...kinds) {
  if (!state.about?.history_seconds) return;
  state.flowsAt = Date.now();
  for (const kind of kinds) try { state.flows[kind] = await ask('/api/v1/history/flows?of=' + kind); } catch { /* the next one asks again */ }
  draw();
}
async function loadCheck() { try { state.check = await ask('/api/v1/check'); draw(); } catch (p) { trouble(p); } }
async function loadConfig() { try { state.configuration = (await ask('/api/v1/configuration')).yaml; draw(); } catch (p) { trouble(p); } }
async function loadLog() { try { state.lines = (await ask('/api/v1/log')).lines; draw(); } catch (p) { trouble(p); } }

async function runCheck() {
  Object.assign(state, { checking: true, problem: null });
  draw();
  try { state.check = await post('/api/v1/check'); } catch (p) { state.problem = p.message; }
  state.checking = false;
  draw();
}

async function explain(table, values) {
  state.explained[table] = { loading: true };
  draw();
  try { state.explained[table] = await ask('/api/v1/tables/' + encodeURIComponent(table) + '/explain' + (values ? '?values=true' : '')); } catch (p) { state.explained[table] = { problem: p.message }; }
  draw();
}

// seen takes a status that came.
function seen(st) {
  Object.assign(state, { status: st, at: Date.now(), failed: null });
  const o = st.obstacle, of = o ? [o.reason, o.row?.commit_lsn, o.row?.number].join(' ') : '';
  if (of !== state.obstacleOf || o && Date.now() - state.obstacleAt > 15000) { state.obstacleOf = of; o ? loadObstacle() : (state.obstacle = null); }
  loadWaiting();
  if (Date.now() - state.flowsAt > 15000 && ['/tables', '/shards'].includes(location.pathname)) loadFlows(...(location.pathname === '/tables' ? ['tables', 'topics'] : ['shards']));
  draw();
}

// poll asks in place of a stream, where as many are open as there may be.
let asks = 0;
async function poll() {
  if (asks++ % 3 === 2) { listen(); return; }
  try {
    if (!state.held) seen(await ask('/api/v1/status'));
    await loadHistory();
  } catch (problem) { state.failed = problem.message; }
  again = setTimeout(poll, 5000);
}

let source = null, again = 0;
function listen() {
  source?.close();
  clearTimeout(again);
  source = new EventSource('/api/v1/stream?kinds=' + (state.quiet ? 'status,charts' : 'status,charts,log'));
  source.addEventListener('status', (e) => {
    state.crowded = false;
    if (!state.held) seen(JSON.parse(e.data));
  });
  source.addEventListener('charts', (e) => {
    const point = JSON.parse(e.data), H = state.history;
    state.newest = point.series;
    if (state.held) return;
    if (!H || H.step_seconds > 1 || Date.now() - state.loaded > 600000) {
      if (!H || Date.now() - state.loaded > 10000) loadHistory();
      return;
    }
    const place = Math.round((Date.parse(point.at) - Date.parse(H.from)) / 1000);
    for (const [key, column] of Object.entries(H.series)) {
      while (column.length < place) column.push(null);
      column[place] = point.series[key];
      const over = column.length - 901;
      if (over > 0) column.splice(0, over);
    }
    const over = place - 900;
    if (over > 0) H.from = new Date(Date.parse(H.from) + over * 1000).toISOString();
    const was = state.changes.at(-1), st = state.status;
    if (st && (!was || was.state !== st.state || (was.reason ?? '') !== st.reason)) state.changes.push({ at: point.at, state: st.state, reason: st.reason, headline: st.headline });
  });
  source.addEventListener('log', (e) => {
    const line = JSON.parse(e.data);
    if (state.lines.some((l) => l.number === line.number && l.line.time === line.line.time)) return;
    state.lines.push(line);
    if (state.lines.length > 500) state.lines.shift();
  });
  source.onerror = async () => {
    if (source.readyState !== EventSource.CLOSED) return;
    try {
      const about = await ask('/api/v1/console');
      if (!about.admitted && about.token) { go('/login'); return; }
      state.about = about;
      if (about.streams_left === 0) { state.crowded = true; poll(); return; }
      state.quiet = !state.quiet; // where the log is not for everybody, go on without it
    } catch { /* it is away; try again */ }
    again = setTimeout(listen, 2000);
  };
}

async function begin() {
  if (remembered('theme')) document.documentElement.dataset.theme = remembered('theme');
  document.body.append(spoken, dialog);
  app.replaceChildren();
  draw();
  try { state.about = await ask('/api/v1/console'); } catch (problem) { state.failed = problem.message; draw(); }
  if (state.about?.token && !state.about.admitted) { if (location.pathname !== '/login') go('/login'); return; }
  try { state.status = await ask('/api/v1/status'); state.at = Date.now(); } catch (problem) { state.failed = problem.message; }
  opened();
  await loadHistory();
  listen();
  setInterval(draw, 1000); // ages go on where nothing comes
}
begin();

// What a script finds beside the language: console, fetch, timers and progress. It is
// evaluated once; each run begins with a copy of the memory that it leaves. It takes
// what it uses of the language now, so that a script which changes Promise or JSON
// breaks only itself.
(function (host) {
  'use strict';
  const { log, fetchStart, timerStart, timerStop, report, random, done, failed } = host;
  const { parse, stringify } = JSON;
  const { keys, entries, freeze, defineProperty } = Object;
  const then = Function.prototype.call.bind(Promise.prototype.then);
  const waiting = new Map();
  const timers = new Map();

  const show = (value) => {
    if (typeof value === 'string') return value;
    if (value instanceof Error) return String(value.stack ? `${value}\n${value.stack}` : value).trimEnd();
    if (typeof value === 'object' && value !== null) {
      try { return stringify(value) ?? String(value); } catch { return String(value); }
    }
    if (typeof value === 'bigint') return `${value}n`;
    return String(value);
  };
  const line = (level) => (...values) => { log(level, values.map(show).join(' ')); };
  const console = {};
  for (const level of ['debug', 'log', 'info', 'warn', 'error', 'trace']) console[level] = line(level);

  class Headers {
    #all = [];
    constructor(init) {
      if (init instanceof Headers) this.#all = [...init];
      else if (Array.isArray(init)) for (const [name, value] of init) this.append(name, value);
      else if (init) for (const [name, value] of entries(init)) this.append(name, value);
    }
    append(name, value) { this.#all.push([String(name).toLowerCase(), String(value)]); }
    set(name, value) { this.delete(name); this.append(name, value); }
    delete(name) { name = String(name).toLowerCase(); this.#all = this.#all.filter(([known]) => known !== name); }
    has(name) { name = String(name).toLowerCase(); return this.#all.some(([known]) => known === name); }
    get(name) {
      name = String(name).toLowerCase();
      const found = this.#all.filter(([known]) => known === name);
      return found.length ? found.map(([, value]) => value).join(', ') : null;
    }
    forEach(fn) { for (const [name, value] of this.#all) fn(value, name, this); }
    entries() { return this.#all.map((pair) => [...pair])[Symbol.iterator](); }
    [Symbol.iterator]() { return this.entries(); }
  }

  class Response {
    #body; #binary;
    constructor(answer) {
      this.#body = answer.body ?? '';
      this.#binary = answer.binary;
      this.url = answer.url;
      this.status = answer.status;
      this.ok = answer.status >= 200 && answer.status < 300;
      this.headers = new Headers(answer.headers ?? []);
    }
    async text() {
      if (this.#binary) throw new TypeError('the body is not UTF-8; use bytes()');
      return this.#body;
    }
    async json() { return parse(await this.text()); }
    async bytes() {
      // Text is turned into bytes by way of its percent-escapes, which are UTF-8.
      const raw = this.#binary ? atob(this.#body)
        : encodeURIComponent(this.#body).replace(/%([0-9A-F]{2})/g, (_, hex) => String.fromCharCode(parseInt(hex, 16)));
      return Uint8Array.from(raw, (c) => c.charCodeAt(0));
    }
    async arrayBuffer() { return (await this.bytes()).buffer; }
  }

  const fetch = (target, init = {}) => new Promise((resolve, reject) => {
    const headers = {};
    for (const [name, value] of new Headers(init.headers)) headers[name] = name in headers ? `${headers[name]}, ${value}` : value;
    const body = init.body === undefined || init.body === null ? null : String(init.body);
    const id = fetchStart(stringify({ url: String(target), method: String(init.method ?? 'GET').toUpperCase(), headers, body }));
    waiting.set(id, { resolve, reject });
  });

  const setTimeout = (fn, ms = 0, ...values) => {
    if (typeof fn !== 'function') throw new TypeError('setTimeout needs a function');
    const id = timerStart(Number(ms) || 0);
    timers.set(id, () => fn(...values));
    return id;
  };
  const clearTimeout = (id) => { if (timers.delete(id)) timerStop(id); };

  const provide = (name, value) => defineProperty(globalThis, name, { value, writable: true, configurable: true });
  for (const [name, value] of entries({ console: freeze(console), fetch, Headers, Response, setTimeout, clearTimeout })) provide(name, value);
  // The seed of the engine's own generator is part of the copied memory.
  defineProperty(Math, 'random', { value: () => random(), writable: true, configurable: true });

  const describe = (error) => {
    try {
      if (error instanceof Error) return failed(String(error.name), String(error.message), String(error.stack ?? ''));
      return failed('', show(error), '');
    } catch { return failed('', 'the script threw a value that cannot be shown', ''); }
  };

  return {
    // Begins a run: the module is evaluated, and its default export is called.
    start(loaded, input) {
      const ran = then(loaded, (module) => {
        if (typeof module.default !== 'function') throw new TypeError('the script has no function as its default export');
        const run = parse(input);
        run.progress = (percent, message = '') => { report(Number(percent) || 0, String(message)); };
        return module.default(run);
      });
      then(then(ran, (value) => {
        const text = stringify(value);
        done(text === undefined ? '' : text);
      }), undefined, describe);
    },
    answered(text) {
      const answer = parse(text);
      const one = waiting.get(answer.id);
      waiting.delete(answer.id);
      if (answer.error) one.reject(new TypeError(`fetch failed: ${answer.error}`));
      else one.resolve(new Response(answer));
    },
    fired(id) {
      const fn = timers.get(id);
      timers.delete(id);
      if (fn) fn();
    },
  };
})

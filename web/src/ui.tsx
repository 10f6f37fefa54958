// The small parts that all screens are made of.

import { useEffect, useId, useRef, useState, type FormEvent, type ReactNode } from 'react';
import { SchedulerError } from './api';
import { usePreferences } from './preferences';
import { absolute, myZone, relative, useNow } from './time';

/** A time with its zone, and how far away it is. */
export function Time({ at, zone, short }: { at: string | null | undefined; zone?: string; short?: boolean }) {
  const { clock } = usePreferences();
  const now = useNow();
  if (!at) return <span className="faint">–</span>;
  const shown = clock === 'utc' ? 'UTC' : clock === 'job' && zone ? zone : myZone;
  const text = absolute(at, shown);
  const away = relative(at, now);
  return (
    <time dateTime={at} title={`${text} (${shown})`}>
      {short ? away : <>{text} <span className="faint">{away}</span></>}
    </time>
  );
}

const statuses: Record<string, [sign: string, tone: string]> = {
  completed: ['●', 'good'], delivered: ['●', 'good'], healthy: ['●', 'good'], active: ['●', 'good'],
  failed: ['✕', 'bad'], unhealthy: ['✕', 'bad'],
  running: ['◐', 'busy'], canary: ['◐', 'busy'], halted: ['✕', 'bad'], retrying: ['↻', 'warn'], degraded: ['△', 'warn'],
  pending: ['○', 'calm'], paused: ['‖', 'warn'], inactive: ['■', 'calm'],
  suspended: ['‖', 'warn'], deleting: ['✕', 'bad'], deleted: ['■', 'calm'],
  ok: ['●', 'good'], late: ['△', 'warn'], down: ['✕', 'bad'], new: ['○', 'calm'], abandoned: ['⊘', 'calm'], unknown: ['△', 'calm'],
  skipped: ['⊘', 'calm'], missed: ['△', 'warn'], cancelled: ['■', 'calm'],
};

/** A state as a sign, a colour and a word. */
export function Status({ of, small }: { of: string; small?: boolean }) {
  const [sign, tone] = statuses[of] ?? ['·', 'calm'];
  return (
    <span className={`status ${tone}`} title={of}>
      <span aria-hidden="true">{sign}</span> <span className={small ? 'unseen' : undefined}>{of}</span>
    </span>
  );
}

/** What the API refused, in its words, with what to quote. */
export function Problem({ error, again }: { error: unknown; again?: () => void }) {
  const known = error instanceof SchedulerError ? error : null;
  const message = known ? known.message : error instanceof TypeError ? 'The service cannot be reached. The console tries again by itself.' : error instanceof Error ? error.message : String(error);
  return (
    <div role="alert" className="problem">
      <p>{message}</p>
      {known && known.details.length > 0 && (
        <ul>
          {known.details.map((detail) => (
            <li key={`${detail.field} ${detail.rule}`}><code>{detail.field}</code> {detail.message}</li>
          ))}
        </ul>
      )}
      <p className="faint">
        {known && <>{known.code}, HTTP {known.status}{known.requestId && <>, request <code>{known.requestId}</code></>} </>}
        {again && <button type="button" onClick={again}>Try again</button>}
      </p>
    </div>
  );
}

/** A screen without anything to show: what it is for and how to begin. */
export function Empty({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <div className="empty">
      <p><strong>{title}</strong></p>
      {children}
    </div>
  );
}

export function Loading({ what }: { what: string }) {
  return <p role="status" className="loading">Loading {what}…</p>;
}

/** Gives the focus back to what had it; where that is gone, to the screen. */
export function useFocusBack(): void {
  useEffect(() => {
    const before = document.activeElement;
    return () => {
      // The question leaves the page after this, and what it changes comes with it.
      setTimeout(() => {
        if (document.activeElement !== document.body || document.querySelector('dialog[open]')) return;
        const back = before instanceof HTMLElement && before.isConnected && before !== document.body ? before : document.getElementById('main');
        back?.focus({ preventScroll: true });
      });
    };
  }, []);
}

/** A question in front of the screen. Escape closes it, and the browser keeps the focus inside. */
export function Dialog({ title, onClose, children }: { title: string; onClose: () => void; children: ReactNode }) {
  const ref = useRef<HTMLDialogElement>(null);
  const id = useId();
  useFocusBack();
  useEffect(() => {
    const dialog = ref.current;
    if (dialog && !dialog.open) dialog.showModal();
  }, []);
  return (
    <dialog ref={ref} aria-labelledby={id} onClose={onClose} onCancel={onClose}>
      <h2 id={id}>{title}</h2>
      {children}
    </dialog>
  );
}

/** A label, its field, what the field means, and what is wrong with it. */
export function Field({ label, hint, error, children, required }: { label: string; hint?: ReactNode; error?: string | undefined; required?: boolean; children: (props: { id: string; 'aria-describedby': string; 'aria-invalid': boolean }) => ReactNode }) {
  const id = useId();
  const described = `${id}-hint`;
  return (
    <div className={error ? 'field wrong' : 'field'}>
      <label htmlFor={id}>{label}{required && <span className="faint"> (required)</span>}</label>
      {children({ id, 'aria-describedby': described, 'aria-invalid': Boolean(error) })}
      <div id={described}>
        {error && <p className="error">{error}</p>}
        {hint && <p className="hint">{hint}</p>}
      </div>
    </div>
  );
}

/** Names and their values, of one thing. */
export function Facts({ of }: { of: [name: string, value: ReactNode][] }) {
  return (
    <dl className="facts">
      {of.map(([name, value]) => (
        <div key={name}><dt>{name}</dt><dd>{value}</dd></div>
      ))}
    </dl>
  );
}

/** A value as JSON, to read and to copy. */
export function Json({ value, label }: { value: unknown; label: string }) {
  const text = typeof value === 'string' ? value : JSON.stringify(value, null, 2);
  return <pre tabIndex={0} role="region" aria-label={label}>{text}</pre>;
}

export function Title({ children, actions, of }: { children: ReactNode; actions?: ReactNode; of: string }) {
  useEffect(() => {
    document.title = `${of} – Scheduler`;
  }, [of]);
  return (
    <div className="title">
      <h1><bdi>{children}</bdi></h1>
      {actions && <div className="actions">{actions}</div>}
    </div>
  );
}

/** A question with fields: it closes once the API has done what was asked, and says why where it has not. */
export function FormDialog({ title, submit, danger, act, onClose, children }: { title: string; submit: string; danger?: boolean; act: (form: FormData) => Promise<unknown>; onClose: () => void; children: ReactNode }) {
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  async function send(event: FormEvent<HTMLFormElement>): Promise<void> {
    event.preventDefault();
    setBusy(true);
    try {
      await act(new FormData(event.currentTarget));
      onClose();
    } catch (refused) {
      setError(refused);
      setBusy(false);
    }
  }
  return (
    <Dialog title={title} onClose={onClose}>
      <form onSubmit={send}>
        {children}
        {error !== null && <Problem error={error} />}
        <div className="actions">
          <button className={danger ? 'danger' : 'main'} disabled={busy}>{submit}</button>
          <button type="button" onClick={onClose}>Leave it as it is</button>
        </div>
      </form>
    </Dialog>
  );
}

/** A text to paste elsewhere. Where the browser keeps the clipboard from the page, the text is selected instead. */
export function Copyable({ label, text }: { label: string; text: string }) {
  const ref = useRef<HTMLPreElement>(null);
  const [said, setSaid] = useState('');
  useEffect(() => setSaid(''), [text]);
  async function copy(): Promise<void> {
    try {
      await navigator.clipboard.writeText(text);
      setSaid('Copied');
    } catch {
      if (ref.current) getSelection()?.selectAllChildren(ref.current);
      setSaid('Selected: copy it with Ctrl-C');
    }
  }
  return (
    <div>
      <div className="bar"><span>{label}</span><button type="button" onClick={() => void copy()}>Copy<span className="unseen"> the line: {label}</span></button><span role="status" className="faint">{said}</span></div>
      <pre ref={ref} tabIndex={0} role="region" aria-label={label}>{text}</pre>
    </div>
  );
}

/** A table that scrolls by itself where the screen is narrow. */
export function Rows({ label, head, children }: { label: string; head: string[]; children: ReactNode }) {
  return (
    <div className="scroll" tabIndex={0} role="region" aria-label={label}>
      <table>
        <thead><tr>{head.map((name) => <th key={name}>{name.startsWith('.') ? <span className="unseen">{name.slice(1)}</span> : name}</th>)}</tr></thead>
        <tbody>{children}</tbody>
      </table>
    </div>
  );
}

/** The end of a list that has more pages. */
export function More({ query, what }: { query: { hasNextPage: boolean; isFetchingNextPage: boolean; fetchNextPage: () => unknown }; what: string }) {
  if (!query.hasNextPage) return null;
  return <p><button type="button" disabled={query.isFetchingNextPage} onClick={() => void query.fetchNextPage()}>{what}</button></p>;
}

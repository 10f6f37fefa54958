// What surrounds every screen: who is signed in, where one can go, whose clock.

import { Link, Outlet, useRouter, useRouterState } from '@tanstack/react-router';
import { useQueryClient } from '@tanstack/react-query';
import { lazy, Suspense, useEffect, useRef, useState, type FormEvent } from 'react';
import { prefer, usePreferences, type Clock, type Theme } from './preferences';
import { screens } from './screens';
import { can, resume, signIn, signOut, useSession } from './session';
import { myZone } from './time';
import { Field, Problem } from './ui';

const Palette = lazy(() => import('./palette').then((module) => ({ default: module.Palette })));

export function Shell() {
  const { session, ended } = useSession();
  const [commanding, setCommanding] = useState(false);
  useEffect(() => {
    const open = (event: KeyboardEvent): void => {
      if (event.key.toLowerCase() !== 'k' || !(event.ctrlKey || event.metaKey) || event.altKey || document.querySelector('dialog[open]')) return;
      event.preventDefault();
      setCommanding(true);
    };
    window.addEventListener('keydown', open);
    return () => window.removeEventListener('keydown', open);
  }, []);
  if (!session) return <SignIn reason={ended} />;
  return (
    <div className="app">
      <a className="skip" href="#main">Skip to the content</a>
      <Header subject={session.subject} onCommand={() => setCommanding(true)} />
      <nav aria-label="Screens">
        {screens.filter((screen) => can(screen.needs)).map((screen) => (
          <Link key={screen.to} to={screen.to} activeOptions={{ exact: screen.to === '/', includeSearch: false }} activeProps={{ 'aria-current': 'page' }}>{screen.name}</Link>
        ))}
      </nav>
      <Content />
      {commanding && <Suspense><Palette onClose={() => setCommanding(false)} /></Suspense>}
      {ended && <SignInAgain reason={ended} />}
    </div>
  );
}

/** A new screen gets the focus, so that a keyboard and a reader begin at its top. */
function Content() {
  const path = useRouterState({ select: (state) => state.location.pathname });
  const ref = useRef<HTMLElement>(null);
  const first = useRef(true);
  useEffect(() => {
    if (!first.current) ref.current?.focus({ preventScroll: true });
    first.current = false;
  }, [path]);
  return <main id="main" ref={ref} tabIndex={-1}><Outlet /></main>;
}

function Header({ subject, onCommand }: { subject: string; onCommand: () => void }) {
  const { theme, clock } = usePreferences();
  const queries = useQueryClient();
  return (
    <header>
      <span className="name">Scheduler</span>
      <button type="button" aria-keyshortcuts="Control+K" onClick={onCommand}>Go to… <kbd>Ctrl K</kbd></button>
      <label>
        <span className="unseen">Whose clock</span>
        <select value={clock} onChange={(event) => prefer({ clock: event.target.value as Clock })}>
          <option value="mine">My time ({myZone})</option>
          <option value="job">The job’s time</option>
          <option value="utc">UTC</option>
        </select>
      </label>
      <label>
        <span className="unseen">Theme</span>
        <select value={theme} onChange={(event) => prefer({ theme: event.target.value as Theme })}>
          <option value="system">System theme</option>
          <option value="light">Light</option>
          <option value="dark">Dark</option>
        </select>
      </label>
      <span className="faint">{subject}</span>
      <button type="button" onClick={() => { queries.clear(); void signOut(); }}>Sign out</button>
    </header>
  );
}

function SignIn({ reason }: { reason: string | null }) {
  useEffect(() => {
    document.title = 'Sign in – Scheduler';
  }, []);
  return (
    <main className="sign-in">
      <h1>Sign in to the scheduler</h1>
      {reason && <p role="alert" className="note">{reason}</p>}
      <IssuerLink />
      <TokenForm />
      <p className="hint faint">The token stays in memory and in a cookie that no script reads. It is forgotten when you sign out or close the browser.</p>
    </main>
  );
}

/** Leads to the issuer and, from there, back to the screen that was asked for. */
function IssuerLink({ elsewhere = false }: { elsewhere?: boolean }) {
  const { issuer } = useSession();
  if (!issuer) return null;
  const to = elsewhere ? '' : `?to=${encodeURIComponent(location.pathname + location.search)}`;
  return (
    <>
      <p><a className="button main" href={issuer + to} {...(elsewhere && { target: '_blank', rel: 'noopener' })}>Sign in with your account{elsewhere && ' in another tab'}</a></p>
      <p className="faint">Or with a token or an API key:</p>
    </>
  );
}

function TokenForm() {
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const queries = useQueryClient();
  const router = useRouter();
  async function submit(event: FormEvent<HTMLFormElement>): Promise<void> {
    event.preventDefault();
    const typed = String(new FormData(event.currentTarget).get('token')).trim().replace(/^Bearer /i, '');
    setBusy(true);
    try {
      await signIn(`Bearer ${typed}`);
      await Promise.all([router.invalidate(), queries.invalidateQueries()]);
    } catch (refused) {
      setError(refused);
    } finally {
      setBusy(false);
    }
  }
  return (
    <form onSubmit={submit}>
      <Field label="Token or API key" required>
        {(props) => <input {...props} name="token" type="password" autoComplete="off" spellCheck={false} autoFocus required />}
      </Field>
      {error !== null && <Problem error={error} />}
      <button className="main" disabled={busy}>Sign in</button>
    </form>
  );
}

/** The token was refused: the screen stays as it is, with what was typed, until somebody signs in again. */
function SignInAgain({ reason }: { reason: string }) {
  const ref = useRef<HTMLDialogElement>(null);
  const { issuer } = useSession();
  const queries = useQueryClient();
  useEffect(() => {
    ref.current?.showModal();
  }, []);
  useEffect(() => {
    if (!issuer) return;
    const back = (): void => void resume().then((on) => (on ? queries.invalidateQueries() : undefined));
    window.addEventListener('focus', back);
    return () => window.removeEventListener('focus', back);
  }, [issuer, queries]);
  // Browsers close a question at the second Escape, whatever it says to the first, and a third one
  // would close the question behind it, with what was typed. So none of them gets that far.
  useEffect(() => {
    const keep = (event: KeyboardEvent): void => void (event.key === 'Escape' && event.preventDefault());
    document.addEventListener('keydown', keep, true);
    return () => document.removeEventListener('keydown', keep, true);
  }, []);
  const stay = (): void => ref.current?.showModal();
  return (
    <dialog ref={ref} aria-labelledby="again" onCancel={(event) => event.preventDefault()} onClose={stay}>
      <h2 id="again">Sign in again</h2>
      <p>{reason}. Your screen stays as it is.</p>
      <IssuerLink elsewhere />
      <TokenForm />
      <p><button type="button" className="plain" onClick={() => void signOut()}>Sign out instead</button></p>
    </dialog>
  );
}

// One verb for many jobs. It first asks the API how many it would act on, and says
// so before anything changes.

import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { api, must, type Schemas } from './api';
import { can } from './session';
import { Dialog, Loading, Problem } from './ui';
import { effects, verbs, type Verb } from './verbs';

export type Chosen = { ids: string[]; /** All of them are active. */ active?: boolean } | { filter: Schemas['JobSelection'] } | { all: true };

/** A pause acts on active jobs alone, so that it can be undone for those that it paused; where others are asked for by name, on those. */
function narrowed(verb: Verb, chosen: Chosen): { acted: Chosen; exact: boolean } {
  if (verb !== 'pause') return { acted: chosen, exact: false };
  if ('all' in chosen) return { acted: { filter: { status: ['active'] } }, exact: true };
  if ('ids' in chosen) return { acted: chosen, exact: chosen.active === true };
  const { status } = chosen.filter;
  return status ? { acted: chosen, exact: status.every((one) => one === 'active') } : { acted: { filter: { ...chosen.filter, status: ['active'] } }, exact: true };
}

/** How many jobs a call may name. */
const maxIds = 1000;

const limitOf = (verb: Verb): number => (verb === 'trigger' ? 1000 : 100_000);
const jobs = (n: number): string => (n === 1 ? '1 job' : `${n.toLocaleString('en')} jobs`);

function send(verb: Verb, chosen: Chosen, more: Partial<Schemas['JobBulk']>): Promise<Schemas['BulkResult']> {
  const body = { ...('ids' in chosen ? { ids: chosen.ids } : { ...chosen, limit: limitOf(verb) }), ...more } as Schemas['JobBulk'];
  return must(api.POST(verbs[verb].path, { body }));
}

interface Done {
  verb: Verb;
  count: number;
  /** Those that were acted on; of very many, the first. */
  ids: string[];
  faults: Schemas['BulkResult']['faults'];
  faultCount: number;
}

export function BulkDialog({ verb, chosen, onClose }: { verb: Verb; chosen: Chosen; onClose: (changed: boolean) => void }) {
  const [reason, setReason] = useState('');
  const [done, setDone] = useState<Done | null>(null);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const { acted, exact } = narrowed(verb, chosen);
  const plan = useQuery({ queryKey: ['dry-run', verb, acted], queryFn: () => send(verb, acted, { dryRun: true }), gcTime: 0, staleTime: Infinity });
  const { name, past, danger, reason: takesReason } = verbs[verb];
  async function act(verb: Verb, chosen: Chosen): Promise<void> {
    setBusy(true);
    setError(null);
    const sum: Done = { verb, count: 0, ids: [], faults: [], faultCount: 0 };
    try {
      let cursor: string | null | undefined;
      do {
        const result = await send(verb, chosen, { ...(verbs[verb].reason && reason && { reason }), ...(cursor && { cursor }) });
        sum.count += result.doneCount;
        sum.ids.push(...result.done.map(({ id }) => id));
        sum.faultCount += result.faultCount;
        sum.faults.push(...result.faults.slice(0, 20 - sum.faults.length));
        cursor = result.nextCursor;
      } while (cursor && verb !== 'trigger');
      setDone(sum);
    } catch (refused) {
      setError(refused);
      if (sum.count > 0) setDone(sum);
    } finally {
      setBusy(false);
    }
  }
  const count = plan.data?.doneCount ?? 0;
  const beyond = plan.data?.nextCursor ? ' or more' : '';
  const undoable = exact && done?.verb === verb && done.count > 0 && done.count === done.ids.length && done.count <= maxIds && can(verbs.resume.needs);
  return (
    <Dialog title={done ? `${jobs(done.count)} ${verbs[done.verb].past}` : `${name} jobs`} onClose={() => onClose(done !== null)}>
      {plan.isPending && <Loading what="how many jobs that are" />}
      {plan.error && <Problem error={plan.error} />}
      {error !== null && <Problem error={error} />}
      {plan.data && !done && (
        <>
          <p>{effects[verb]}</p>
          <p className="big">{jobs(count)}{beyond} would be {past}{plan.data.faultCount > 0 && <>; {jobs(plan.data.faultCount)} would be left as they are</>}.</p>
          <Faults of={plan.data.faults.slice(0, 20)} count={plan.data.faultCount} />
          {takesReason && <label>Reason<br /><input value={reason} maxLength={500} onChange={(event) => setReason(event.target.value)} /></label>}
        </>
      )}
      {done && <Faults of={done.faults} count={done.faultCount} />}
      <div className="actions bar">
        {plan.data && !done && count > 0 && <button type="button" className={danger ? 'danger' : 'main'} disabled={busy} onClick={() => void act(verb, acted)}>{busy ? 'Working…' : `${name} ${jobs(count)}${beyond}`}</button>}
        {done && undoable && <button type="button" disabled={busy} onClick={() => void act('resume', { ids: done.ids })}>Undo: resume {jobs(done.count)}</button>}
        <button type="button" onClick={() => onClose(done !== null)}>{done ? 'Close' : 'Leave them as they are'}</button>
      </div>
    </Dialog>
  );
}

function Faults({ of, count }: { of: Schemas['BulkResult']['faults']; count: number }) {
  if (count === 0) return null;
  return (
    <details open={count <= 5}>
      <summary>{jobs(count)} refused</summary>
      <ul>{of.map((fault) => <li key={fault.id}><code>{fault.id}</code> {fault.message}</li>)}</ul>
      {count > of.length && <p>…and {count - of.length} more</p>}
    </details>
  );
}

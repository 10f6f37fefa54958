// Dead letters: executions that failed for good and wait for somebody, by what they have
// in common and one by one.

import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { getRouteApi, Link, useNavigate } from '@tanstack/react-router';
import { useState } from 'react';
import { api, every, must, newKey, type Schemas } from './api';
import type { DeadLetterFilters } from './dead-letters-filter';
import { errorTypes } from './executions-filter';
import { usePages } from './pages';
import { can } from './session';
import { Empty, Field, FormDialog, Loading, More, Problem, Rows, Status, Time, Title } from './ui';
import { Views } from './views';

type Letter = Schemas['DeadLetter'];
type Group = Schemas['DeadLetterGroup'];

const route = getRouteApi('/dead-letters');
const views = ['list', 'replays'] as const;
const letters = (n: number): string => (n === 1 ? '1 dead letter' : `${n.toLocaleString('en')} dead letters`);

function queryOf({ fingerprint, error, job }: DeadLetterFilters) {
  return { ...(fingerprint && { fingerprint }), ...(error && { errorType: [error] }), ...(job && { jobId: job }) };
}

export function DeadLetters() {
  const filters = route.useSearch();
  const navigate = route.useNavigate();
  const set = (change: DeadLetterFilters): void => void navigate({ search: (before) => ({ ...before, ...change }), replace: true });
  const single = filters.view === 'list' || filters.fingerprint !== undefined;
  return (
    <>
      <Title of="Dead letters">Dead letters</Title>
      <search className="bar">
        <label>Error
          <select value={filters.error ?? ''} onChange={(event) => set({ error: errorTypes.find((one) => one === event.target.value) })}>
            <option value="">Any</option>
            {errorTypes.map((one) => <option key={one}>{one}</option>)}
          </select>
        </label>
        <label>Shown
          <select value={single ? 'list' : filters.view ?? ''} onChange={(event) => set({ view: views.find((one) => one === event.target.value), fingerprint: undefined })}>
            <option value="">by what they have in common</option>
            <option value="list">one by one</option>
            <option value="replays">replays of many</option>
          </select>
        </label>
        {filters.fingerprint && <span>of one error <button type="button" onClick={() => set({ fingerprint: undefined })}>Show all errors</button></span>}
        {filters.job && <span>of one job <button type="button" onClick={() => set({ job: undefined })}>Show all jobs</button></span>}
      </search>
      <Views screen="/dead-letters" search={filters} />
      {single ? <Letters filters={filters} /> : filters.view === 'replays' ? <Replays /> : <Groups filters={filters} />}
    </>
  );
}

function None({ filters }: { filters: DeadLetterFilters }) {
  return Object.keys(queryOf(filters)).length > 0 ? <Empty title="No dead letter fits these filters." /> : <Empty title="There are no dead letters."><p>An execution that fails for good stands here until somebody replays or discards it.</p></Empty>;
}

function Groups({ filters }: { filters: DeadLetterFilters }) {
  const [discarding, setDiscarding] = useState<Group | null>(null);
  const [replaying, setReplaying] = useState<Group | null>(null);
  const query = useQuery({
    queryKey: ['dead-letters', 'groups', filters],
    queryFn: ({ signal }) => must(api.GET('/api/v1/scheduler/dead-letters/groups', { signal, params: { query: { ...queryOf(filters), limit: 100 } } })),
    ...every(30),
  });
  const items = query.data?.items ?? [];
  return (
    <>
      {query.error && <Problem error={query.error} again={() => void query.refetch()} />}
      {query.isPending && <Loading what="dead letters" />}
      {query.data && items.length === 0 && <None filters={filters} />}
      {items.length > 0 && (
        <Rows label="Errors" head={['How many', 'Error', 'Jobs', 'Failed', '.Actions']}>
          {items.map((group) => (
            <tr key={group.fingerprint}>
              <td>{group.count.toLocaleString('en')}</td>
              <td><strong>{group.errorType}</strong> <bdi>{group.errorMessage}</bdi></td>
              <td>{group.jobCount.toLocaleString('en')}</td>
              <td><Time at={group.lastFailedAt} /><div className="faint">first <Time at={group.firstFailedAt} short /></div></td>
              <td>
                <div className="actions">
                  <Link className="button" to="/dead-letters" search={{ ...filters, fingerprint: group.fingerprint }}>Show<span className="unseen"> {letters(group.count)} with {group.errorType} {group.fingerprint}</span></Link>
                  {can('executions:control') && <button type="button" onClick={() => setReplaying(group)}>Replay<span className="unseen"> {letters(group.count)} with {group.errorType} {group.fingerprint}</span></button>}
                  {can('executions:control') && <button type="button" className="danger" onClick={() => setDiscarding(group)}>Discard<span className="unseen"> {letters(group.count)} with {group.errorType} {group.fingerprint}</span></button>}
                </div>
              </td>
            </tr>
          ))}
        </Rows>
      )}
      {query.data?.hasMore && <p className="faint">There are smaller groups too.</p>}
      {replaying && <Replay filter={{ ...queryOf(filters), fingerprint: replaying.fingerprint }} count={replaying.count} onClose={() => setReplaying(null)} />}
      {discarding && <Discard filter={{ ...queryOf(filters), fingerprint: discarding.fingerprint }} count={discarding.count} onClose={() => setDiscarding(null)} />}
    </>
  );
}

/** Discards all that fit; a call takes 10,000 at most. */
function Discard({ filter, count, onClose }: { filter: Schemas['DeadLetterSelection']; count: number; onClose: () => void }) {
  const queries = useQueryClient();
  return (
    <FormDialog title={`Discard ${letters(count)}`} submit={`Discard ${letters(count)}`} danger onClose={onClose}
      act={async () => {
        for (let more = true; more;) more = (await must(api.POST('/api/v1/scheduler/dead-letters/discard', { body: { filter } }))).hasMore;
        await queries.invalidateQueries({ queryKey: ['dead-letters'] });
      }}>
      <p>They leave this list. Their executions stay in the history.</p>
    </FormDialog>
  );
}

/** Replays all that fit, one first, and shows how far that is. */
function Replay({ filter, count, onClose }: { filter: Schemas['DeadLetterSelection']; count: number; onClose: () => void }) {
  const navigate = useNavigate();
  const [key] = useState(newKey);
  return (
    <FormDialog title={`Replay ${letters(count)}`} submit={`Replay ${letters(count)}`} onClose={onClose}
      act={async (form) => {
        await must(api.POST('/api/v1/scheduler/dead-letter-replays', { params: { header: { 'Idempotency-Key': key } }, body: { filter, ratePerMinute: Number(form.get('rate')), canary: form.get('canary') !== null } }));
        await navigate({ to: '/dead-letters', search: { view: 'replays' } });
      }}>
      <p>Each runs again as a new execution, the oldest first.</p>
      <Field label="A minute, at most" required>{(field) => <input {...field} name="rate" type="number" min={1} max={3000} defaultValue={60} required />}</Field>
      <p><label><input type="checkbox" name="canary" defaultChecked /> One first, and the others only if it completes</label></p>
    </FormDialog>
  );
}

const underWay = (status: string): boolean => status === 'canary' || status === 'running';

function Replays() {
  const queries = useQueryClient();
  const { query, items } = usePages(['dead-letters', 'replays'], (page, signal) => must(api.GET('/api/v1/scheduler/dead-letter-replays', { signal, params: { query: page } })),
    (shown) => (shown.some((one) => underWay(one.status)) ? 2 : 30));
  const cancel = useMutation({
    mutationFn: (id: string) => must(api.POST('/api/v1/scheduler/dead-letter-replays/{id}/cancel', { params: { path: { id } } })),
    onSuccess: () => queries.invalidateQueries({ queryKey: ['dead-letters'] }),
  });
  const error = query.error ?? cancel.error;
  return (
    <>
      {error && <Problem error={error} again={() => void query.refetch()} />}
      {query.isPending && <Loading what="replays" />}
      {query.data && items.length === 0 && <Empty title="Nobody has replayed many at once." />}
      {items.length > 0 && (
        <Rows label="Replays" head={['State', 'Replayed', 'Refused', 'Asked for', '.Actions']}>
          {items.map((one) => (
            <tr key={one.id}>
              <td><Status of={one.status} />{one.reason && <div className="warn"><bdi>{one.reason}</bdi></div>}{one.canaryExecutionId && <div><Link to="/executions/$id" params={{ id: one.canaryExecutionId }}>The first one</Link></div>}</td>
              <td>{one.replayedCount.toLocaleString('en')} of {one.total.toLocaleString('en')}, at most {one.ratePerMinute} a minute</td>
              <td>{one.refusedCount === 0 ? 0 : <details><summary>{one.refusedCount.toLocaleString('en')}</summary><ul>{one.faults.map((fault) => <li key={fault.executionId}><code>{fault.executionId}</code> <bdi>{fault.message}</bdi></li>)}</ul></details>}</td>
              <td><Time at={one.createdAt} /> by <bdi>{one.createdBy}</bdi></td>
              <td>{underWay(one.status) && can('executions:control') && <button type="button" className="danger" disabled={cancel.isPending} onClick={() => cancel.mutate(one.id)}>Cancel<span className="unseen"> the replay of {one.createdAt}</span></button>}</td>
            </tr>
          ))}
        </Rows>
      )}
      <More query={query} what="Older replays" />
    </>
  );
}

function Letters({ filters }: { filters: DeadLetterFilters }) {
  const { query, items } = usePages(['dead-letters', 'list', filters], (page, signal) => must(api.GET('/api/v1/scheduler/dead-letters', { signal, params: { query: { ...queryOf(filters), ...page } } })), () => 30);
  return (
    <>
      {query.error && <Problem error={query.error} again={() => void query.refetch()} />}
      {query.isPending && <Loading what="dead letters" />}
      {query.data && items.length === 0 && <None filters={filters} />}
      {items.length > 0 && (
        <Rows label="Dead letters" head={['Job', 'Failed', 'Error', '.Actions']}>
          {items.map((letter) => (
            <tr key={letter.executionId}>
              <td>{letter.jobName ? <Link to="/jobs/$id" params={{ id: letter.jobId }} search={{}}><bdi>{letter.jobName}</bdi></Link> : <span className="faint">a deleted job</span>}</td>
              <td><Link to="/executions/$id" params={{ id: letter.executionId }}><Time at={letter.failedAt} /></Link></td>
              <td><strong>{letter.errorType}</strong> <bdi>{letter.errorMessage}</bdi></td>
              <td>{can('executions:control') && <Actions letter={letter} />}</td>
            </tr>
          ))}
        </Rows>
      )}
      <More query={query} what="Older dead letters" />
    </>
  );
}

function Actions({ letter }: { letter: Letter }) {
  const queries = useQueryClient();
  const navigate = useNavigate();
  const changed = (): Promise<void> => queries.invalidateQueries({ queryKey: ['dead-letters'] });
  const replay = useMutation({
    mutationFn: () => must(api.POST('/api/v1/scheduler/dead-letters/{id}/replay', { params: { path: { id: letter.executionId }, header: { 'Idempotency-Key': newKey() } } })) as Promise<Schemas['Execution']>,
    onSuccess: async (made) => {
      await changed();
      await navigate({ to: '/executions/$id', params: { id: made.id } });
    },
  });
  const discard = useMutation({
    mutationFn: () => must(api.DELETE('/api/v1/scheduler/dead-letters/{id}', { params: { path: { id: letter.executionId } } }) as Promise<{ data?: null; response: Response }>),
    onSuccess: changed,
  });
  const error = replay.error ?? discard.error;
  const of = <span className="unseen"> <bdi>{letter.jobName}</bdi> of {letter.failedAt}</span>;
  return (
    <div className="actions">
      <button type="button" disabled={replay.isPending} onClick={() => replay.mutate()}>Replay{of}</button>
      <button type="button" className="danger" disabled={discard.isPending} onClick={() => discard.mutate()}>Discard{of}</button>
      {error && <Problem error={error} />}
    </div>
  );
}

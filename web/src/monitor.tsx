// One monitor: how it is and why, where its cron pings, and what became of its runs.

import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { getRouteApi, Link, useNavigate } from '@tanstack/react-router';
import { useState, type ReactNode } from 'react';
import { api, every, must, type Schemas } from './api';
import { MonitorForm } from './monitor-form';
import { scheduleInWords, whyDown, whyRun, type Monitor } from './monitor-words';
import { usePages } from './pages';
import { can } from './session';
import { duration, exactly } from './time';
import { Copyable, Empty, Facts, FormDialog, Json, Loading, More, Problem, Rows, Status, Time, Title } from './ui';

const route = getRouteApi('/monitors/$id');

export function MonitorScreen() {
  const { id } = route.useParams();
  const query = useQuery({ queryKey: ['monitor', id], queryFn: ({ signal }) => must(api.GET('/api/v1/scheduler/monitors/{id}', { signal, params: { path: { id } } })), ...every(5) });
  const one = query.data;
  if (!one) return query.error ? <Problem error={query.error} again={() => void query.refetch()} /> : <Loading what="the monitor" />;
  const runs = <section key="runs" aria-labelledby="runs"><h2 id="runs">Last runs</h2><Runs of={one} /></section>;
  return (
    <>
      <p><Link to="/monitors" search={{}}>Monitors</Link></p>
      <Title of={one.name} actions={can('monitors:write') && <Actions one={one} />}>{one.name}</Title>
      {query.error && <Problem error={query.error} />}
      <p className="big"><Status of={one.status} /> – <State of={one} /></p>
      <Facts of={factsOf(one)} />
      {one.lastPingAt !== null && runs}
      <h2>How its cron pings</h2>
      <Pings of={one} />
      {one.lastPingAt === null && runs}
    </>
  );
}

/** Its state and the reason, in a sentence or two. */
function State({ of: one }: { of: Monitor }) {
  const at = (moment: string | null) => <Time at={moment} zone={one.timezone} />;
  switch (one.status) {
    case 'new': return <>It waits for its first ping: until then nobody knows what its cron does, and nobody is told.</>;
    case 'paused': return <>Pings are stored, but nobody judges them, and nobody is told.</>;
    case 'late': return <>A run should have started {at(one.expectedAt)}. The monitor fails {at(one.deadlineAt)}, unless a ping comes before.</>;
    case 'running': return <>A run goes on since {at(one.runningSince)}.{one.deadlineAt && <> The monitor fails {at(one.deadlineAt)}, unless the run ends before.</>}</>;
    case 'down': return (
      <>
        {whyDown(one)} Down since {at(one.downSince)}, {one.failures.toLocaleString('en')} {one.failures === 1 ? 'failure' : 'failures in a row'}.{' '}
        {one.runningSince ? <>A run goes on since {at(one.runningSince)}.</> : <>It is up again after {one.recoveryThreshold === 1 ? 'a success' : `${one.recoveryThreshold} successes in a row`}.</>}
      </>
    );
    default: return <>The last run was as it should be.{one.expectedAt && <> The next should start {at(one.expectedAt)}.</>}</>;
  }
}

function factsOf(one: Monitor): [string, ReactNode][] {
  const facts: [string, ReactNode][] = [
    ['Schedule', <>{scheduleInWords(one)}{one.cronExpression !== null && <div className="faint"><code>{one.cronExpression}</code> {one.timezone}</div>}</>],
    ['Last ping', one.lastPingAt ? <Time at={one.lastPingAt} zone={one.timezone} /> : 'none yet'],
    ['Next run expected', <Time at={one.expectedAt} zone={one.timezone} />],
    ['A run may start late by', exactly(one.startGraceSeconds)],
    ['A run may take', `${exactly(one.maxRuntimeSeconds + one.completionGraceSeconds)}${one.maxRuntimeSeconds > 0 ? `: ${exactly(one.maxRuntimeSeconds)} and a grace of ${exactly(one.completionGraceSeconds)}` : ''}${one.extendOnLog ? ', longer while it logs' : ''}`],
    ['Down after', `${one.failureThreshold} ${one.failureThreshold === 1 ? 'failure' : 'failures in a row'}`],
    ['Up again after', `${one.recoveryThreshold} ${one.recoveryThreshold === 1 ? 'success' : 'successes in a row'}`],
    ['Tags', one.tags.length ? one.tags.map((tag) => <span key={tag} className="tag"><bdi>{tag}</bdi></span>) : '–'],
    ['Created', <><Time at={one.createdAt} zone={one.timezone} /> by <bdi>{one.createdBy}</bdi></>],
  ];
  if (one.minRuntimeSeconds > 0) facts.push(['Too fast below', exactly(one.minRuntimeSeconds)]);
  if (one.alertTooOften) facts.push(['A run long before its time', 'is a failure']);
  return facts;
}

/** Five fields that every cron reads. */
const crontab = /^(([\d*/,-]|[a-z]{3})+( +|$)){5}$/i;

/** The lines of a crontab or a script. */
function Pings({ of: one }: { of: Monitor }) {
  if (one.pingUrl === null) return <p className="note">The ping address is hidden, because it lets anybody ping. It is shown to those who may change monitors (<code>monitors:write</code>).</p>;
  const address = new URL(one.pingUrl, location.origin).href; // a path where the installation does not know its own address
  const inCrontab = crontab.test(one.cronExpression ?? '');
  const curl = (signal: string): string => `curl -fsS --retry 3 "${address}${signal}"`;
  return (
    <>
      <Copyable label="A run begins" text={curl('/start')} />
      <Copyable label="A run succeeded" text={curl('')} />
      <Copyable label="The command before it ended, with its exit code" text={curl('/$?')} />
      {inCrontab && <Copyable label="All of it, as a line of a crontab" text={`${one.cronExpression} ${curl('/start')}; YOUR-COMMAND; ${curl('/$?')}`} />}
      <p className="hint faint">The address alone lets a caller ping this monitor, and do nothing else. A text that is sent with a ping is kept as the run’s log: add <code>--data-binary @FILE</code>.</p>
    </>
  );
}

function Actions({ one }: { one: Monitor }) {
  const [asked, setAsked] = useState<'edit' | 'rotate' | 'remove' | null>(null);
  const queries = useQueryClient();
  const navigate = useNavigate();
  const params = { path: { id: one.id } };
  const close = (): void => setAsked(null);
  const changed = (stored: Monitor): void => {
    queries.setQueryData(['monitor', one.id], stored);
    void queries.invalidateQueries({ queryKey: ['monitors'] });
  };
  const toggle = useMutation({
    mutationFn: () => must(one.paused ? api.POST('/api/v1/scheduler/monitors/{id}/resume', { params }) : api.POST('/api/v1/scheduler/monitors/{id}/pause', { params })),
    onSuccess: changed,
  });
  return (
    <>
      {toggle.error && <Problem error={toggle.error} />}
      <button type="button" disabled={toggle.isPending} onClick={() => toggle.mutate()}>{one.paused ? 'Resume' : 'Pause'}</button>
      <button type="button" onClick={() => setAsked('edit')}>Change</button>
      <button type="button" onClick={() => setAsked('rotate')}>New ping address</button>
      <button type="button" className="danger" onClick={() => setAsked('remove')}>Delete</button>
      {asked === 'edit' && <MonitorForm stored={one} onClose={close} onStored={changed} />}
      {asked === 'rotate' && (
        <FormDialog title={`A new ping address for ${one.name}`} submit="Make a new address" danger onClose={close}
          act={async () => changed(await must(api.POST('/api/v1/scheduler/monitors/{id}/rotate-key', { params })))}>
          <p>Pings to the old address are refused at once: put the new one into the crontab before the next run.</p>
        </FormDialog>
      )}
      {asked === 'remove' && (
        <FormDialog title={`Delete the monitor ${one.name}`} submit="Delete this monitor" danger onClose={close}
          act={async () => {
            await must(api.DELETE('/api/v1/scheduler/monitors/{id}', { params }) as Promise<{ response: Response }>);
            await queries.invalidateQueries({ queryKey: ['monitors'] });
            await navigate({ to: '/monitors', search: {} });
          }}>
          <p>Its runs and their logs go with it, and its pings are refused.</p>
        </FormDialog>
      )}
    </>
  );
}

function Runs({ of: one }: { of: Monitor }) {
  const { query, items } = usePages(['monitor-runs', one.id], (page, signal) => must(api.GET('/api/v1/scheduler/monitors/{id}/runs', { signal, params: { path: { id: one.id }, query: page } })), () => 5);
  return (
    <>
      {query.error && <Problem error={query.error} again={() => void query.refetch()} />}
      {query.isPending && <Loading what="runs" />}
      {query.data && items.length === 0 && <Empty title="No run has been told yet." />}
      {items.length > 0 && (
        <Rows label="Runs" head={['Outcome', 'Why', 'When', 'Took', 'Log']}>
          {items.map((run) => <Run key={run.number} run={run} zone={one.timezone} />)}
        </Rows>
      )}
      <More query={query} what="Older runs" />
    </>
  );
}

function Run({ run, zone }: { run: Schemas['MonitorRun']; zone: string }) {
  const last = run.log.trimEnd().split('\n').at(-1) ?? '';
  return (
    <tr>
      <td><Status of={run.outcome} /></td>
      <td>{whyRun(run)}{run.runId !== null && <div className="faint">run <bdi>{run.runId}</bdi></div>}</td>
      <td><When run={run} zone={zone} /></td>
      <td>{run.durationMs !== null ? duration(run.durationMs) : run.outcome === 'running' ? <span className="faint">still runs</span> : '–'}</td>
      <td>
        {run.log ? (
          <details>
            <summary><bdi>{last.length > 80 ? `${last.slice(0, 80)}…` : last}</bdi></summary>
            <Json label={`Log of run ${run.number}`} value={run.log} />
          </details>
        ) : <span className="faint">none</span>}
      </td>
    </tr>
  );
}

/** When it started; of one whose start was not told, what is known instead. */
function When({ run, zone }: { run: Schemas['MonitorRun']; zone: string }) {
  if (run.startedAt) return <Time at={run.startedAt} zone={zone} />;
  if (run.endedAt) return <>{run.outcome !== 'logged' && 'ended '}<Time at={run.endedAt} zone={zone} /></>;
  if (run.expectedAt) return <>should have started <Time at={run.expectedAt} zone={zone} /></>;
  return <Time at={run.at} zone={zone} />;
}

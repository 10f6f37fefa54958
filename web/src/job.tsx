// One job: what it is, when it runs next, what became of its runs, and its versions.

import { useInfiniteQuery, useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { getRouteApi, Link, useNavigate } from '@tanstack/react-router';
import { useState, type FormEvent, type ReactNode } from 'react';
import { api, every, must, type Job, type Schemas } from './api';
import { Backfills } from './backfills';
import { Runs } from './runs';
import { scheduleOf } from './schedule';
import { can } from './session';
import { duration } from './time';
import { Dialog, Empty, Facts, Field, Json, Loading, Problem, Status, Time, Title } from './ui';
import { effects, type Verb } from './verbs';

const route = getRouteApi('/jobs/$id');
const tabs = { summary: 'Summary', runs: 'Runs', backfills: 'Backfills', versions: 'Versions', json: 'JSON' } as const;

export function JobScreen() {
  const { id } = route.useParams();
  const search = route.useSearch();
  const tab = search.tab && search.tab in tabs ? (search.tab as keyof typeof tabs) : 'summary';
  const query = useQuery({ queryKey: ['job', id], queryFn: ({ signal }) => must(api.GET('/api/v1/scheduler/jobs/{id}', { signal, params: { path: { id } } })), ...every(5) });
  const job = query.data;
  if (!job) return query.error ? <Problem error={query.error} again={() => void query.refetch()} /> : <Loading what="the job" />;
  return (
    <>
      <p><Link to="/jobs" search={{}}>Jobs</Link></p>
      <Title of={job.name} actions={<Actions job={job} />}>{job.name}</Title>
      {query.error && <Problem error={query.error} />}
      <State job={job} />
      <nav className="tabs" aria-label="About this job">
        {(Object.keys(tabs) as (keyof typeof tabs)[]).filter((one) => (one !== 'runs' && one !== 'backfills') || can('executions:read')).map((one) => (
          <Link key={one} to="/jobs/$id" params={{ id }} search={one === 'summary' ? {} : { tab: one }} activeOptions={{ exact: true }} aria-current={one === tab ? 'page' : undefined}>{tabs[one]}</Link>
        ))}
      </nav>
      {tab === 'summary' && <Summary job={job} />}
      {tab === 'runs' && <JobRuns job={job} />}
      {tab === 'backfills' && <Backfills job={job} />}
      {tab === 'versions' && <Versions job={job} chosen={search.version} />}
      {tab === 'json' && <Json label="The job as JSON" value={job} />}
    </>
  );
}

function State({ job }: { job: Job }) {
  return (
    <p className="big">
      <Status of={job.status} />{' '}
      {job.status === 'active' && (job.nextExecutionAt ? <>– next run <Time at={job.nextExecutionAt} zone={job.timezone} /></> : '– no scheduled time is ahead')}
      {job.statusReason && <>– {job.statusReason} <span className="faint">({job.statusBy}, <Time at={job.statusAt} short />)</span></>}
      {job.pausedUntil && <> until <Time at={job.pausedUntil} zone={job.timezone} /></>}
      {job.cancelling && <> – {job.cancelling.remaining} executions are still being cancelled</>}
    </p>
  );
}

function Summary({ job }: { job: Job }) {
  return (
    <div className="two">
      <section aria-labelledby="next"><h2 id="next">Next runs</h2><NextRuns job={job} /></section>
      <section aria-labelledby="definition">
        <h2 id="definition">Definition</h2>
        {job.description && <p><bdi>{job.description}</bdi></p>}
        <Facts of={factsOf(job)} />
        <h3>Config of type {job.jobType}</h3>
        <Json label="Config" value={job.config} />
      </section>
    </div>
  );
}

function factsOf(job: Job): [string, ReactNode][] {
  const retry = job.retryConfig;
  const facts: [string, ReactNode][] = [
    ['Schedule', scheduleOf(job)],
    ['Zone', job.timezone],
    ['Timeout of an attempt', duration(job.timeout * 1000)],
    ['Retries', retry.maxRetries === 0 ? 'none' : `${retry.maxRetries}, the first after ${duration(retry.retryDelayMs ?? 0)}${retry.exponentialBackoff ? ', doubling' : ''}`],
    ['Runs at once', `${job.maxConcurrent}; beyond: ${job.overlapPolicy}`],
    ['After an outage', job.misfirePolicy],
    ['Priority', job.priority],
    ['Tags', job.tags.length ? job.tags.map((tag) => <span key={tag} className="tag"><bdi>{tag}</bdi></span>) : '–'],
    ['Runs so far', job.executionCount.toLocaleString('en')],
    ['Last run', <Time key="last" at={job.lastExecutionAt} zone={job.timezone} />],
    ['Created', <><Time at={job.createdAt} zone={job.timezone} /> by {job.createdBy}</>],
    ['Version', job.version],
  ];
  if (job.jitterSeconds > 0) facts.push(['Spread over', duration(job.jitterSeconds * 1000)]);
  if (job.concurrencyKey) facts.push(['Concurrency key', <code key="key">{job.concurrencyKey}</code>]);
  if (job.startDate) facts.push(['Not before', <Time key="start" at={job.startDate} zone={job.timezone} />]);
  if (job.endDate) facts.push(['Not from', <Time key="end" at={job.endDate} zone={job.timezone} />]);
  if (job.calendars.length > 0) facts.push(['Calendars', job.calendars.length]);
  return facts;
}

function NextRuns({ job }: { job: Job }) {
  const query = useQuery({
    queryKey: ['schedule', job.id, job.version, job.nextExecutionAt],
    queryFn: ({ signal }) => must(api.GET('/api/v1/scheduler/jobs/{id}/schedule', { signal, params: { path: { id: job.id }, query: { count: 10 } } })),
  });
  if (query.error) return <Problem error={query.error} again={() => void query.refetch()} />;
  if (!query.data) return <Loading what="the schedule" />;
  return <Occurrences of={query.data.occurrences} warnings={query.data.warnings} zone={query.data.timezone} paused={job.status !== 'active'} />;
}

const drops: Record<string, string> = { calendar: 'a calendar leaves it out', gap: 'the clock skips this time', overlap: 'the other pass of this time runs' };

/** Times of a schedule, those that do not run with the reason, and what is probably not meant. */
export function Occurrences({ of, warnings, zone, paused }: { of: Schemas['Occurrence'][]; warnings: Schemas['ScheduleWarning'][]; zone: string; paused?: boolean }) {
  return (
    <>
      {paused && of.length > 0 && <p className="note">The job is not active: these times do not run until it is resumed.</p>}
      {warnings.map((warning) => <p key={warning.code} className="note">{warning.message}</p>)}
      {of.length === 0 ? <p className="faint">Nothing is scheduled.</p> : (
        <ol>
          {of.map((one) => (
            <li key={one.nominalAt} className={one.scheduledAt ? undefined : 'faint'}>
              {one.scheduledAt ? <Time at={one.scheduledAt} zone={zone} /> : <><s><Time at={one.nominalAt} zone={zone} /></s> {drops[one.dropReason ?? ''] ?? 'does not run'}</>}
              {one.clockChange && <span className="warn"> △ {one.clockChange === 'moved' ? `moved: ${one.localTime.slice(11)} does not exist that day` : 'the second pass of this time'}</span>}
            </li>
          ))}
        </ol>
      )}
    </>
  );
}

function JobRuns({ job }: { job: Job }) {
  return <Runs strip queryKey={['job-runs', job.id]} zone={job.timezone} read={(cursor, signal) => must(api.GET('/api/v1/scheduler/jobs/{id}/executions', { signal, params: { path: { id: job.id }, query: { limit: 100, ...(cursor && { cursor }) } } }))}
    empty={<Empty title="This job has not run yet.">{can('jobs:trigger') && <p>“Run now” runs it once, beside its schedule.</p>}</Empty>} />;
}

/** All versions, or one of them beside the current one. */
function Versions({ job, chosen }: { job: Job; chosen: number | undefined }) {
  return chosen && chosen !== job.version ? <Difference key={chosen} job={job} version={chosen} /> : <AllVersions job={job} />;
}

function AllVersions({ job }: { job: Job }) {
  const query = useInfiniteQuery({
    queryKey: ['versions', job.id, job.version],
    queryFn: ({ pageParam, signal }) => must(api.GET('/api/v1/scheduler/jobs/{id}/versions', { signal, params: { path: { id: job.id }, query: { limit: 50, ...(pageParam && { cursor: pageParam }) } } })),
    initialPageParam: '',
    getNextPageParam: (page) => page.nextCursor ?? undefined,
  });
  if (query.error) return <Problem error={query.error} again={() => void query.refetch()} />;
  if (!query.data) return <Loading what="the versions" />;
  return (
    <>
      <div className="scroll" tabIndex={0} role="region" aria-label="Versions">
        <table>
          <thead><tr><th>Version</th><th>Made</th><th>By</th><th>Changed</th><th><span className="unseen">Compare</span></th></tr></thead>
          <tbody>
            {query.data.pages.flatMap((page) => page.items).map((one) => (
              <tr key={one.version}>
                <td>{one.version}{one.restoredFrom && <span className="faint"> (brought back {one.restoredFrom})</span>}</td>
                <td><Time at={one.createdAt} zone={job.timezone} /></td>
                <td>{one.createdBy}</td>
                <td>{one.changedFields.length ? one.changedFields.map((field) => <code key={field}>{field} </code>) : <span className="faint">–</span>}</td>
                <td>{one.version === job.version ? 'current' : <Link to="/jobs/$id" params={{ id: job.id }} search={{ tab: 'versions', version: one.version }}>Compare<span className="unseen"> version {one.version}</span></Link>}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {query.hasNextPage && <p><button type="button" disabled={query.isFetchingNextPage} onClick={() => void query.fetchNextPage()}>Older versions</button></p>}
    </>
  );
}

function Difference({ job, version }: { job: Job; version: number }) {
  const queries = useQueryClient();
  const navigate = useNavigate();
  const query = useQuery({
    queryKey: ['compare', job.id, job.version, version],
    queryFn: ({ signal }) => must(api.GET('/api/v1/scheduler/jobs/{id}/versions/{version}/compare/{other}', { signal, params: { path: { id: job.id, version: job.version, other: version } } })),
  });
  const restore = useMutation({
    mutationFn: () => must(api.POST('/api/v1/scheduler/jobs/{id}/versions/{version}/restore', { params: { path: { id: job.id, version } } })),
    onSuccess: async (restored) => {
      queries.setQueryData(['job', job.id], restored);
      await navigate({ to: '/jobs/$id', params: { id: job.id }, search: { tab: 'versions' } });
    },
  });
  return (
    <section aria-labelledby="difference">
      <nav aria-label="Versions" className="bar">
        <Link className="button" to="/jobs/$id" params={{ id: job.id }} search={{ tab: 'versions' }}>All versions</Link>
        {version > 1 && <Compare job={job} version={version - 1}>‹ Version {version - 1}</Compare>}
        {version + 1 < job.version && <Compare job={job} version={version + 1}>Version {version + 1} ›</Compare>}
      </nav>
      <h2 id="difference">Version {version} beside the current version {job.version}</h2>
      {query.error && <Problem error={query.error} />}
      {query.isPending && <Loading what="what differs" />}
      {restore.error && <Problem error={restore.error} />}
      {query.data?.changes.length === 0 && <p>They do not differ.</p>}
      {query.data && query.data.changes.length > 0 && (
        <div className="scroll" tabIndex={0} role="region" aria-label="Differences">
          <table>
            <thead><tr><th>Field</th><th>Now (version {job.version})</th><th>In version {version}</th></tr></thead>
            <tbody>
              {query.data.changes.map((change) => (
                <tr key={change.field}><td><code>{change.field}</code></td><td className="old"><Value of={change.from} /></td><td className="new"><Value of={change.to} /></td></tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {can('jobs:write') && query.data && query.data.changes.length > 0 && <p><button type="button" disabled={restore.isPending} onClick={() => restore.mutate()}>Bring version {version} back</button> <span className="faint">It becomes a new version; none is lost.</span></p>}
    </section>
  );
}

function Compare({ job, version, children }: { job: Job; version: number; children: ReactNode }) {
  return <Link className="button" to="/jobs/$id" params={{ id: job.id }} search={{ tab: 'versions', version }}>{children}</Link>;
}

function Value({ of }: { of: unknown }) {
  return of === undefined ? <span className="faint">absent</span> : <code>{JSON.stringify(of)}</code>;
}

function Actions({ job }: { job: Job }) {
  const [verb, setVerb] = useState<Verb | null>(null);
  return (
    <>
      {can('jobs:trigger') && <button type="button" className="main" onClick={() => setVerb('trigger')}>Run now</button>}
      {can('jobs:write') && <Link className="button" to="/jobs/$id/edit" params={{ id: job.id }}>Edit</Link>}
      {can('jobs:write') && <Link className="button" to="/jobs/new" search={{ from: job.id }}>Copy</Link>}
      {can('jobs:control') && <button type="button" onClick={() => setVerb(job.status === 'active' ? 'pause' : 'resume')}>{job.status === 'active' ? 'Pause' : 'Resume'}</button>}
      {can('jobs:control') && job.status !== 'inactive' && <button type="button" className="danger" onClick={() => setVerb('stop')}>Stop</button>}
      {can('jobs:write') && <button type="button" className="danger" onClick={() => setVerb('delete')}>Delete</button>}
      {verb && <ActDialog verb={verb} job={job} onClose={() => setVerb(null)} />}
    </>
  );
}

const buttons: Record<Verb, string> = { pause: 'Pause this job', resume: 'Resume this job', trigger: 'Run it now', stop: 'Stop this job', delete: 'Delete this job' };

function ActDialog({ verb, job, onClose }: { verb: Verb; job: Job; onClose: () => void }) {
  const queries = useQueryClient();
  const navigate = useNavigate();
  const act = useMutation({
    mutationFn: (form: FormData) => send(verb, job, form),
    onSuccess: async (made) => {
      onClose();
      if (verb === 'delete') {
        await navigate({ to: '/jobs', search: {} });
        return;
      }
      if (verb === 'trigger' && made && 'jobId' in made) {
        await navigate({ to: '/executions/$id', params: { id: made.id } });
        return;
      }
      await queries.invalidateQueries({ queryKey: ['job', job.id] });
    },
  });
  function submit(event: FormEvent<HTMLFormElement>): void {
    event.preventDefault();
    act.mutate(new FormData(event.currentTarget));
  }
  return (
    <Dialog title={buttons[verb]} onClose={onClose}>
      <p>{effects[verb]}</p>
      <form onSubmit={submit}>
        {verb === 'trigger' && (
          <Field label="Parameters, as JSON" hint="They override parts of the config for this run. Leave it empty to run the job as it is.">{(props) => <textarea {...props} name="parameters" rows={4} spellCheck={false} />}</Field>
        )}
        {verb === 'resume' && (
          <Field label="Times that the pause held back">
            {(props) => (
              <select {...props} name="misfirePolicy">
                <option value="">as the job says ({job.misfirePolicy})</option>
                <option value="skip">skip: run none of them</option>
                <option value="fire_once">fire_once: run the newest</option>
                <option value="fire_all">fire_all: run all, up to {job.misfireLimit}</option>
              </select>
            )}
          </Field>
        )}
        {(verb === 'pause' || verb === 'stop' || verb === 'delete') && <Field label="Reason">{(props) => <input {...props} name="reason" maxLength={500} />}</Field>}
        {act.error && <Problem error={act.error} />}
        <div className="actions">
          <button className={verb === 'stop' || verb === 'delete' ? 'danger' : 'main'} disabled={act.isPending}>{buttons[verb]}</button>
          <button type="button" onClick={onClose}>Leave it as it is</button>
        </div>
      </form>
    </Dialog>
  );
}

function send(verb: Verb, job: Job, form: FormData): Promise<Job | Schemas['Execution'] | null | undefined> {
  const params = { path: { id: job.id } };
  const reason = String(form.get('reason') ?? '');
  const because = reason ? { reason } : {};
  switch (verb) {
    case 'pause':
      return must(api.POST('/api/v1/scheduler/jobs/{id}/pause', { params, body: because }));
    case 'resume': {
      const policy = String(form.get('misfirePolicy')) as Schemas['MisfirePolicy'] | '';
      return must(api.POST('/api/v1/scheduler/jobs/{id}/resume', { params, body: policy ? { misfirePolicy: policy } : {} }));
    }
    case 'stop':
      return must(api.POST('/api/v1/scheduler/jobs/{id}/stop', { params, body: because }));
    case 'delete':
      return must(api.DELETE('/api/v1/scheduler/jobs/{id}', { params: { ...params, query: because } }) as Promise<{ data?: null; response: Response }>);
    case 'trigger': {
      const typed = String(form.get('parameters')).trim();
      let parameters: unknown;
      try {
        parameters = typed && JSON.parse(typed);
      } catch (wrong) {
        throw new Error(`The parameters are no JSON: ${(wrong as Error).message}`);
      }
      return must(api.POST('/api/v1/scheduler/jobs/{id}/trigger', { params, body: (typed ? { parameters } : {}) as Schemas['TriggerRequest'] }));
    }
  }
}

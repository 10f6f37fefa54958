// The list of jobs: search, filters, and verbs for many jobs at once.

import { useInfiniteQuery } from '@tanstack/react-query';
import { getRouteApi, Link } from '@tanstack/react-router';
import { useEffect, useState } from 'react';
import { again, api, must, type Job, type Schemas } from './api';
import { BulkDialog, type Chosen } from './bulk';
import { jobSorts, jobStatuses, selectionOf, type JobFilters } from './jobs-filter';
import { List, useNarrow } from './list';
import { scheduleOf } from './schedule';
import { can } from './session';
import { Strip } from './strip';
import { useStrips } from './strips';
import { Typed } from './typed';
import { Empty, Loading, Problem, Status, Time, Title } from './ui';
import { verbs, type Verb } from './verbs';
import { Views } from './views';

const route = getRouteApi('/jobs');

export function Jobs() {
  const filters = route.useSearch();
  const navigate = route.useNavigate();
  const set = (change: JobFilters): void => void navigate({ search: (before) => ({ ...before, ...change }), replace: true });
  const query = useInfiniteQuery({
    queryKey: ['jobs', filters],
    queryFn: ({ pageParam, signal }) =>
      must(api.GET('/api/v1/scheduler/jobs', { signal, params: { query: { ...selectionOf(filters), ...(filters.sort && { sort: filters.sort }), limit: 100, ...(pageParam && { cursor: pageParam }) } } })),
    initialPageParam: '',
    getNextPageParam: (page) => page.nextCursor ?? undefined,
    // Reading many pages again and again costs more than it tells.
    refetchInterval: (asked) => (asked.state.status === 'error' ? again(asked) : asked.state.data?.pages.length === 1 ? 10_000 : false),
  });
  const jobs = query.data?.pages.flatMap((page) => page.items) ?? [];
  const filtered = Object.keys(selectionOf(filters)).length > 0;
  return (
    <>
      <Title of="Jobs" actions={can('jobs:write') && <Link className="button main" to="/jobs/new" search={{}}>New job</Link>}>Jobs</Title>
      <Views screen="/jobs" search={filters} />
      <Filters filters={filters} set={set} types={new Set(jobs.map((job) => job.jobType))} />
      {query.error && <Problem error={query.error} again={() => void query.refetch()} />}
      {query.isPending && <Loading what="jobs" />}
      {query.data && jobs.length === 0 && (filtered ? (
        <Empty title="No job fits these filters."><p><button type="button" onClick={() => set({ q: undefined, status: undefined, type: undefined, tag: undefined })}>Remove the filters</button></p></Empty>
      ) : (
        <Empty title="There are no jobs yet.">
          <p>A job says what runs, and when.</p>
          {can('jobs:write') && <p><Link className="button main" to="/jobs/new" search={{}}>Create the first job</Link></p>}
        </Empty>
      ))}
      {jobs.length > 0 && <Table jobs={jobs} total={query.data?.pages[0]?.total ?? null} filters={filters} set={set} more={query.hasNextPage && !query.isFetchingNextPage ? () => void query.fetchNextPage() : undefined} done={() => void query.refetch()} />}
    </>
  );
}

function Filters({ filters, set, types }: { filters: JobFilters; set: (change: JobFilters) => void; types: Set<string> }) {
  return (
    <search className="bar">
      <Search value={filters.q} set={(q) => set({ q })} />
      <label>Status
        <select value={filters.status ?? ''} onChange={(event) => set({ status: jobStatuses.find((one) => one === event.target.value) })}>
          <option value="">Any</option>
          {jobStatuses.map((status) => <option key={status}>{status}</option>)}
        </select>
      </label>
      <Typed label="Type" value={filters.type} set={(type) => set({ type })} known={[...new Set(['http', 'function', ...types])]} />
      <Typed label="Tag" value={filters.tag} set={(tag) => set({ tag })} known={[]} />
      <label>Order
        <select value={filters.sort ?? '-createdAt'} onChange={(event) => set({ sort: event.target.value === '-createdAt' ? undefined : (event.target.value as keyof typeof jobSorts) })}>
          {Object.entries(jobSorts).map(([value, name]) => <option key={value} value={value}>{name}</option>)}
        </select>
      </label>
    </search>
  );
}

/** Searches a moment after the last key. */
function Search({ value, set }: { value: string | undefined; set: (value: string | undefined) => void }) {
  const [typed, setTyped] = useState(value ?? '');
  useEffect(() => setTyped(value ?? ''), [value]);
  useEffect(() => {
    if (typed === (value ?? '')) return undefined;
    const wait = setTimeout(() => set(typed || undefined), 200);
    return () => clearTimeout(wait);
  }, [typed]);
  return <label>Name or description<input type="search" value={typed} maxLength={100} onChange={(event) => setTyped(event.target.value)} /></label>;
}

function Table({ jobs, total, filters, set, more, done }: { jobs: Job[]; total: number | null; filters: JobFilters; set: (change: JobFilters) => void; more: (() => void) | undefined; done: () => void }) {
  const [picked, setPicked] = useState<ReadonlySet<string>>(new Set());
  const [matching, setMatching] = useState(false);
  const [verb, setVerb] = useState<Verb | null>(null);
  const selection = selectionOf(filters);
  const shape = JSON.stringify(selection);
  useEffect(() => {
    setPicked(new Set());
    setMatching(false);
  }, [shape]);
  const chosen: Chosen = matching ? (Object.keys(selection).length ? { filter: selection } : { all: true }) : { ids: [...picked] };
  const toggle = (id: string): void => {
    const next = new Set(picked);
    if (!next.delete(id)) next.add(id);
    setPicked(next);
    setMatching(false);
  };
  /** Those that a verb acts on: a pause of some jobs leaves out those that are paused already. */
  const chosenFor = (verb: Verb): Chosen => {
    if (!('ids' in chosen)) return chosen;
    const active = jobs.filter((job) => picked.has(job.id) && job.status === 'active').map((job) => job.id);
    return verb === 'pause' && active.length > 0 ? { ids: active, active: true } : chosen;
  };
  const withRuns = !useNarrow() && can('executions:read');
  const strips = useStrips(withRuns);
  const allowed = (Object.keys(verbs) as Verb[]).filter((one) => can(verbs[one].needs));
  return (
    <>
      <div className="bar">
        <span role="status">
          {matching ? 'All jobs that match' : picked.size > 0 ? `${picked.size} selected` : `${jobs.length}${more || (total ?? 0) > jobs.length ? ` of ${total ?? 'more'}` : ''} ${jobs.length === 1 && !more ? 'job' : 'jobs'}`}
        </span>
        {allowed.length > 0 && (
          <label className="beside"><input type="checkbox" checked={matching} onChange={(event) => setMatching(event.target.checked)} /> All that match</label>
        )}
        {(matching || picked.size > 0) && allowed.map((one) => (
          <button key={one} type="button" className={verbs[one].danger ? 'danger' : undefined} onClick={() => setVerb(one)}>{verbs[one].name}</button>
        ))}
      </div>
      <List label="Jobs" className={withRuns ? 'jobs with-runs' : 'jobs'} onSight={withRuns ? strips.onSight : undefined} items={jobs} keyOf={(job) => job.id} more={more}
        head={<>
          <span role="columnheader"><span className="unseen">Select</span></span>
          <span role="columnheader">Name</span>
          <span role="columnheader">Status</span>
          <span role="columnheader" className="wide">Schedule</span>
          <span role="columnheader">Next run</span>
          {withRuns && <span role="columnheader">Last runs</span>}
          <span role="columnheader" className="wide">Tags</span>
        </>}
        row={(job) => <>
          <span role="cell"><input type="checkbox" aria-label={`Select ${job.name}`} checked={matching || picked.has(job.id)} onChange={() => toggle(job.id)} /></span>
          <span role="cell" title={job.name}><Link to="/jobs/$id" params={{ id: job.id }} search={{}}><bdi>{job.name}</bdi></Link></span>
          <span role="cell"><Status of={job.status} /></span>
          <span role="cell" className="wide">{scheduleOf(job)}</span>
          <span role="cell"><Time at={job.nextExecutionAt} zone={job.timezone} short /></span>
          {withRuns && <span role="cell"><LastRuns of={job} runs={strips.of.get(job.id)} /></span>}
          <span role="cell" className="wide">{job.tags.map((tag) => <button key={tag} type="button" className="tag" title={`Only jobs with the tag ${tag}`} onClick={() => set({ tag })}><bdi>{tag}</bdi></button>)}</span>
        </>} />
      {verb && <BulkDialog verb={verb} chosen={chosenFor(verb)} onClose={(changed) => { setVerb(null); if (changed) { setPicked(new Set()); setMatching(false); done(); } }} />}
    </>
  );
}

/** Leads to the runs that it shows. */
function LastRuns({ of, runs }: { of: Job; runs: Schemas['RecentRun'][] | undefined }) {
  if (!runs) return null;
  if (runs.length === 0) return <span className="faint">none yet</span>;
  return <Link to="/jobs/$id" params={{ id: of.id }} search={{ tab: 'runs' }}><Strip small runs={[...runs].reverse()} /></Link>;
}

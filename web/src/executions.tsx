// All executions, the newest first, as they happen.

import { getRouteApi } from '@tanstack/react-router';
import { api, must, type Schemas } from './api';
import { errorTypes, executionStatuses, triggerTypes, type ExecutionFilters } from './executions-filter';
import { Runs } from './runs';
import { Empty, Title } from './ui';
import { Views } from './views';

const route = getRouteApi('/executions');
const none: ExecutionFilters = { status: undefined, trigger: undefined, error: undefined, job: undefined, from: undefined, to: undefined };

export function Executions() {
  const filters = route.useSearch();
  const navigate = route.useNavigate();
  const set = (change: ExecutionFilters): void => void navigate({ search: (before) => ({ ...before, ...change }), replace: true });
  const filtered = Object.values(filters).some((value) => value !== undefined);
  return (
    <>
      <Title of="Executions">Executions</Title>
      <Views screen="/executions" search={filters} />
      <search className="bar">
        <Choice label="Status" of={executionStatuses} value={filters.status} set={(status) => set({ status })} />
        <Choice label="Made by" of={triggerTypes} value={filters.trigger} set={(trigger) => set({ trigger })} />
        <Choice label="Error" of={errorTypes} value={filters.error} set={(error) => set({ error })} />
        <Moment label="Scheduled from" value={filters.from} set={(from) => set({ from })} />
        <Moment label="to" value={filters.to} set={(to) => set({ to })} />
        {filters.job && <span>of one job <button type="button" onClick={() => set({ job: undefined })}>Show all jobs</button></span>}
        {filtered && <button type="button" onClick={() => set(none)}>Remove the filters</button>}
      </search>
      <Runs queryKey={['executions', filters]} read={(cursor, signal) => must(api.GET('/api/v1/scheduler/executions', { signal, params: { query: queryOf(filters, cursor) } }))}
        empty={filtered ? <Empty title="No execution fits these filters." /> : <Empty title="Nothing has run yet."><p>An execution is made when a job’s scheduled time comes, or when somebody runs it.</p></Empty>} />
    </>
  );
}

function queryOf({ status, trigger, error, job, from, to }: ExecutionFilters, cursor: string) {
  return {
    limit: 100,
    ...(status && { status: [status] }),
    ...(trigger && { triggerType: [trigger] }),
    ...(error && { errorType: [error] }),
    ...(job && { jobId: job }),
    ...(from && { from }),
    ...(to && { to }),
    ...(cursor && { cursor }),
  } satisfies Record<string, unknown> as { limit: number; status?: Schemas['ExecutionStatus'][] };
}

function Choice<T extends string>({ label, of, value, set }: { label: string; of: readonly T[]; value: T | undefined; set: (value: T | undefined) => void }) {
  return (
    <label>{label}
      <select value={value ?? ''} onChange={(event) => set(of.find((one) => one === event.target.value))}>
        <option value="">Any</option>
        {of.map((one) => <option key={one}>{one}</option>)}
      </select>
    </label>
  );
}

/** A time on this browser's clock, in the address as UTC. */
function Moment({ label, value, set }: { label: string; value: string | undefined; set: (value: string | undefined) => void }) {
  const at = value ? new Date(value) : null;
  const local = at && !Number.isNaN(at.getTime()) ? new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 16) : '';
  return <label>{label} (my time)<input type="datetime-local" value={local} onChange={(event) => set(event.target.value ? new Date(event.target.value).toISOString() : undefined)} /></label>;
}

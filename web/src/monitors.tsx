// Monitors: crons that run elsewhere, and whether they do.

import { useQueryClient } from '@tanstack/react-query';
import { getRouteApi, Link, useNavigate } from '@tanstack/react-router';
import { useState } from 'react';
import { api, must } from './api';
import { MonitorForm } from './monitor-form';
import { scheduleInWords, type Monitor } from './monitor-words';
import { monitorStatuses, type MonitorFilters } from './monitors-filter';
import { usePages } from './pages';
import { can } from './session';
import { Typed } from './typed';
import { Empty, Loading, More, Problem, Rows, Status, Time, Title } from './ui';
import { Views } from './views';

const route = getRouteApi('/monitors');

export function Monitors() {
  const { status, tag } = route.useSearch();
  const navigate = useNavigate();
  const queries = useQueryClient();
  const [making, setMaking] = useState(false);
  const set = (change: MonitorFilters): void => void navigate({ to: '/monitors', search: { status, tag, ...change }, replace: true });
  const { query, items } = usePages(['monitors', status, tag], (page, signal) => must(api.GET('/api/v1/scheduler/monitors', { signal, params: { query: { ...page, ...(status && { status }), ...(tag && { tag }) } } })), () => 10);
  const filtered = status !== undefined || tag !== undefined;
  const writes = can('monitors:write');
  return (
    <>
      <Title of="Monitors" actions={writes && <button type="button" className="main" onClick={() => setMaking(true)}>New monitor</button>}>Monitors</Title>
      <search className="bar">
        <label>Status
          <select value={status ?? ''} onChange={(event) => set({ status: monitorStatuses.find((one) => one === event.target.value) })}>
            <option value="">Any</option>
            {monitorStatuses.map((one) => <option key={one}>{one}</option>)}
          </select>
        </label>
        <Typed label="Tag" value={tag} set={(next) => set({ tag: next })} known={[...new Set(items.flatMap((one) => one.tags))]} />
      </search>
      <Views screen="/monitors" search={{ status, tag }} />
      {query.error && <Problem error={query.error} again={() => void query.refetch()} />}
      {query.isPending && <Loading what="monitors" />}
      {query.data && items.length === 0 && (filtered ? (
        <Empty title="No monitor fits these filters."><p><button type="button" onClick={() => set({ status: undefined, tag: undefined })}>Remove the filters</button></p></Empty>
      ) : (
        <Empty title="There are no monitors yet.">
          <p>A monitor watches a cron on another machine. It gives you an address; the cron calls it with one line of <code>curl</code> when it starts and when it ends.</p>
          <p>Where a call does not come in time, or says that the run failed, the monitor is down, and a <Link to="/notifications">notification</Link> can tell you.</p>
          {writes && <p><button type="button" className="main" onClick={() => setMaking(true)}>Create the first monitor</button></p>}
        </Empty>
      ))}
      {items.length > 0 && (
        <Rows label="Monitors" head={['Status', 'Name', 'Schedule', 'Last ping', 'Next run expected', 'Tags']}>
          {items.map((one) => <Row key={one.id} one={one} onTag={(next) => set({ tag: next })} />)}
        </Rows>
      )}
      <More query={query} what="More monitors" />
      {making && (
        <MonitorForm stored={null} onClose={() => setMaking(false)}
          onStored={(made) => {
            queries.setQueryData(['monitor', made.id], made);
            void queries.invalidateQueries({ queryKey: ['monitors'] });
            void navigate({ to: '/monitors/$id', params: { id: made.id } });
          }} />
      )}
    </>
  );
}

function Row({ one, onTag }: { one: Monitor; onTag: (tag: string) => void }) {
  return (
    <tr>
      <td><Status of={one.status} /></td>
      <td><Link to="/monitors/$id" params={{ id: one.id }}><bdi>{one.name}</bdi></Link></td>
      <td>{scheduleInWords(one)}{one.cronExpression !== null && <div className="faint"><code>{one.cronExpression}</code> {one.timezone}</div>}</td>
      <td>{one.lastPingAt ? <Time at={one.lastPingAt} zone={one.timezone} /> : <span className="faint">none yet</span>}</td>
      <td><Time at={one.expectedAt} zone={one.timezone} /></td>
      <td>{one.tags.map((tag) => <button key={tag} type="button" className="tag" title={`Only monitors with the tag ${tag}`} onClick={() => onTag(tag)}><bdi>{tag}</bdi></button>)}</td>
    </tr>
  );
}

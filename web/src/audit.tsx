// Who changed what.

import { getRouteApi } from '@tanstack/react-router';
import { api, must, type Schemas } from './api';
import { usePages } from './pages';
import { Empty, Json, Loading, More, Problem, Rows, Time, Title } from './ui';

export interface AuditFilters {
  actor?: string | undefined;
  action?: string | undefined;
  object?: string | undefined;
}

const route = getRouteApi('/audit');

export function Audit() {
  const filters = route.useSearch();
  const navigate = route.useNavigate();
  const { query, items } = usePages(['audit', filters], (page, signal) =>
    must(api.GET('/api/v1/scheduler/audit', { signal, params: { query: { ...page, ...(filters.actor && { actor: filters.actor }), ...(filters.action && { action: filters.action }), ...(filters.object && { objectId: filters.object }) } } })));
  return (
    <>
      <Title of="Audit log">Audit log</Title>
      <form className="bar" role="search" key={JSON.stringify(filters)}
        onSubmit={(event) => {
          event.preventDefault();
          const form = new FormData(event.currentTarget);
          const value = (name: string): string | undefined => String(form.get(name)).trim() || undefined;
          void navigate({ search: { actor: value('actor'), action: value('action'), object: value('object') }, replace: true });
        }}>
        <label>By<input name="actor" defaultValue={filters.actor ?? ''} maxLength={300} /></label>
        <label>Operation<input name="action" defaultValue={filters.action ?? ''} maxLength={100} placeholder="pauseJob" /></label>
        <label>Id of the thing<input name="object" defaultValue={filters.object ?? ''} maxLength={100} size={30} /></label>
        <button>Show</button>
      </form>
      {query.error && <Problem error={query.error} again={() => void query.refetch()} />}
      {query.isPending && <Loading what="the audit log" />}
      {query.data && items.length === 0 && <Empty title="No change fits." />}
      {items.length > 0 && (
        <Rows label="Changes" head={['When', 'Who', 'Operation', 'Of', 'What differs']}>
          {items.map((entry) => <Entry key={`${entry.shard}.${entry.seq}`} entry={entry} />)}
        </Rows>
      )}
      <More query={query} what="Older changes" />
    </>
  );
}

function Entry({ entry }: { entry: Schemas['AuditEntry'] }) {
  const fields = Object.keys({ ...entry.before, ...entry.after });
  return (
    <tr>
      <td><Time at={entry.at} /></td>
      <td><bdi>{entry.actor}</bdi> <span className="faint">{entry.actorKind}, {entry.address}</span></td>
      <td><code className="whole">{entry.action}</code></td>
      <td>{entry.objectType} <code>{entry.objectId}</code></td>
      <td>
        <details>
          <summary>{entry.change}{entry.change === 'update' && fields.length > 0 && <>: {fields.slice(0, 3).join(', ')}{fields.length > 3 && ` and ${fields.length - 3} more`}</>}</summary>
          {entry.before && <Json label="Before" value={entry.before} />}
          {entry.after && <Json label="After" value={entry.after} />}
          <p className="faint">Request {entry.requestId}</p>
        </details>
      </td>
    </tr>
  );
}

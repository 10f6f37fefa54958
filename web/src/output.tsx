// What an execution writes, as it writes it.

import { useQuery } from '@tanstack/react-query';
import { useEffect, useLayoutEffect, useRef, useState } from 'react';
import { again, api, must, type Execution, type Schemas } from './api';
import { absolute } from './time';
import { usePreferences } from './preferences';
import { Problem } from './ui';
import { myZone } from './time';

type Line = Schemas['LogLine'];
/** Lines that are shown; of more, the newest. */
const maxLines = 5000;

export function Output({ run, finished }: { run: Execution; finished: boolean }) {
  const [wanted, setWanted] = useState('');
  const { clock } = usePreferences();
  const lines = useRef<Line[]>([]);
  const read = useRef(false); // to the end, after the execution finished
  const query = useQuery({
    queryKey: ['output', run.id],
    gcTime: 0,
    staleTime: 0,
    structuralSharing: false,
    queryFn: async ({ signal }) => {
      let more = true;
      while (more) {
        const last = lines.current.at(-1)?.id;
        const page = await must(api.GET('/api/v1/scheduler/executions/{id}/logs', { signal, params: { path: { id: run.id }, query: { limit: 1000, ...(last && { cursor: last }) } } }));
        if (typeof page === 'string') throw new Error('The service answered with a stream instead of a page.');
        lines.current = [...lines.current, ...page.items].slice(-maxLines);
        more = page.hasMore;
      }
      read.current = finished;
      return lines.current;
    },
    refetchInterval: (asked) => (read.current ? false : asked.state.status === 'error' ? again(asked) : 2_000),
  });
  const { refetch } = query;
  useEffect(() => {
    if (finished) void refetch(); // what it wrote last
  }, [finished, refetch]);
  const all = query.data ?? [];
  const shown = wanted ? all.filter((line) => line.text.toLowerCase().includes(wanted.toLowerCase())) : all;
  const zone = clock === 'utc' ? 'UTC' : myZone;
  // The newest line stays in sight while an execution writes, unless somebody reads further up.
  const box = useRef<HTMLDivElement>(null);
  const follows = useRef(!finished);
  useLayoutEffect(() => {
    if (box.current && follows.current) box.current.scrollTop = box.current.scrollHeight;
  }, [query.data]);
  const several = run.attempts.length > 1;
  if (query.error) return <Problem error={query.error} again={() => void query.refetch()} />;
  if (all.length === 0) return <p className="faint">{finished ? 'It wrote nothing.' : 'It has written nothing yet.'}</p>;
  const text = (): string => shown.map((line) => line.text).join('\n');
  return (
    <>
      <div className="bar">
        <label>Lines with<input type="search" value={wanted} onChange={(event) => setWanted(event.target.value)} /></label>
        <button type="button" onClick={() => void navigator.clipboard?.writeText(text())}>Copy</button>
        <button type="button" onClick={() => save(text(), `${run.id}.txt`)}>Download</button>
        <span className="faint" role="status">{shown.length} {shown.length === 1 ? 'line' : 'lines'}{all.length === maxLines && ', the newest'}</span>
      </div>
      <div ref={box} onScroll={({ currentTarget: { scrollTop, clientHeight, scrollHeight } }) => { follows.current = scrollTop + clientHeight >= scrollHeight - 40; }} className="output" tabIndex={0} role="region" aria-label="Lines">
        {shown.map((line) => (
          <div key={line.id} className={line.stream === 'stderr' ? 'bad' : undefined}>
            <span className="faint" title={absolute(line.at, zone)}>{absolute(line.at, zone).slice(11, 19)}{several && ` #${line.attempt}`}{line.stream === 'stderr' && ' stderr'}</span>{' '}
            {line.dropped ? <em>{line.dropped.lines.toLocaleString('en')} lines were not kept</em> : <bdi>{line.text}</bdi>}
          </div>
        ))}
      </div>
    </>
  );
}

function save(text: string, name: string): void {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([text], { type: 'text/plain' }));
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}

// The load of the next hour, minute by minute: the runs that all schedules will make.

import { Link } from '@tanstack/react-router';
import type { Schemas } from './api';
import { brief, shade } from './heat';
import { usePreferences } from './preferences';
import { absolute, myZone } from './time';

export function NextHour({ runs }: { runs: Schemas['UpcomingRuns'] }) {
  return (
    <section aria-labelledby="next-hour">
      <h2 id="next-hour">The next hour</h2>
      <Minutes of={runs} />
    </section>
  );
}

function Minutes({ of }: { of: Schemas['UpcomingRuns'] }) {
  const { clock } = usePreferences();
  const zone = clock === 'utc' ? 'UTC' : myZone;
  const time = (at: number): string => absolute(new Date(at).toISOString(), zone).slice(11, 16);
  if (of.total === 0) return <p className="faint">No schedule runs a job in the next hour. <Link to="/run-calendar" search={{}}>See the days to come</Link></p>;
  const buckets = new Map(of.buckets.map((bucket) => [Math.floor(Date.parse(bucket.startAt) / 60_000), bucket]));
  const most = of.buckets.reduce((a, b) => (b.count > a.count ? b : a));
  const first = Math.floor(Date.parse(of.to) / 60_000) - 60;
  return (
    <>
      <p>
        {of.total.toLocaleString('en')} {of.total === 1 ? 'run is' : 'runs are'} due, the most {most.count.toLocaleString('en')} at {time(Date.parse(most.startAt))} ({zone}).{' '}
        <Link to="/run-calendar" search={{ view: 'day' }}>See the day</Link>
      </p>
      {of.truncated && <p className="note">Only {of.jobs.toLocaleString('en')} jobs could be counted: from {time(Date.parse(of.completeUntil))} on, runs of others are missing.</p>}
      <div className="scroll" tabIndex={0} role="region" aria-label="Runs of the next hour by minute">
        <table className="heat">
          <thead><tr><th scope="col"><span className="unseen">From</span></th>{Array.from({ length: 10 }, (_, minute) => <th key={minute} scope="col">+{minute}</th>)}</tr></thead>
          <tbody>
            {[0, 10, 20, 30, 40, 50].map((ten) => (
              <tr key={ten}>
                <th scope="row">{time((first + ten) * 60_000)}</th>
                {Array.from({ length: 10 }, (_, minute) => {
                  const bucket = buckets.get(first + ten + minute);
                  return <td key={minute} className={shade(bucket?.count ?? 0, most.count)} title={titleOf(time((first + ten + minute) * 60_000), bucket)}>{brief(bucket?.count ?? 0)}</td>;
                })}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}

function titleOf(at: string, bucket: Schemas['UpcomingBucket'] | undefined): string {
  if (!bucket) return `${at}: nothing`;
  const more = bucket.jobCount - bucket.jobs.length;
  return `${at}: ${bucket.count.toLocaleString('en')} runs of ${bucket.jobs.map((job) => job.jobName).join(', ')}${more > 0 ? ` and ${more.toLocaleString('en')} more jobs` : ''}`;
}

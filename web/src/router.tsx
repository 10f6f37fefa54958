// Which address shows which screen. The search parameters of an address are the
// filters of its screen, so that every view can be sent to somebody.

import type { QueryClient } from '@tanstack/react-query';
import { createRootRoute, createRoute, createRouter, lazyRouteComponent, Link, redirect } from '@tanstack/react-router';
import type { Schemas } from './api';
import type { AuditFilters } from './audit';
import { executionFilters } from './executions-filter';
import { deadLetterFilters } from './dead-letters-filter';
import { deliveryStatuses } from './delivery-status';
import { jobFilters, textOf } from './jobs-filter';
import { monitorFilters } from './monitors-filter';
import { runCalendarFilters } from './run-calendar-days';
import { can } from './session';
import { Shell } from './shell';
import { tenantFilters } from './tenants-filter';
import { Empty, Loading, Problem, Title } from './ui';

const root = createRootRoute({ component: Shell, notFoundComponent: Nowhere, errorComponent: ({ error }) => <Problem error={error} /> });

/** A screen with a second view. */
const tabOf = <T extends string>(name: T) => (search: Record<string, unknown>): { tab?: T | undefined } => ({ tab: search['tab'] === name ? name : undefined });

const routes = [
  createRoute({
    getParentRoute: () => root, path: '/', component: lazyRouteComponent(() => import('./overview'), 'Overview'),
    beforeLoad: () => {
      if (can('jobs:read') && !can('monitoring:read')) throw redirect({ to: '/jobs', search: {} });
    },
  }),
  createRoute({ getParentRoute: () => root, path: '/jobs', component: lazyRouteComponent(() => import('./jobs'), 'Jobs'), validateSearch: jobFilters }),
  createRoute({
    getParentRoute: () => root, path: '/jobs/new', component: lazyRouteComponent(() => import('./job-form'), 'NewJob'),
    validateSearch: (search: Record<string, unknown>): { from?: string | undefined } => ({ from: textOf(search['from']) }),
  }),
  createRoute({
    getParentRoute: () => root, path: '/jobs/$id', component: lazyRouteComponent(() => import('./job'), 'JobScreen'),
    validateSearch: (search: Record<string, unknown>): { tab?: string | undefined; version?: number | undefined } => ({ tab: textOf(search['tab']), version: Number(search['version']) || undefined }),
  }),
  createRoute({ getParentRoute: () => root, path: '/jobs/$id/edit', component: lazyRouteComponent(() => import('./job-form'), 'EditJob') }),
  createRoute({ getParentRoute: () => root, path: '/executions', component: lazyRouteComponent(() => import('./executions'), 'Executions'), validateSearch: executionFilters }),
  createRoute({ getParentRoute: () => root, path: '/run-calendar', component: lazyRouteComponent(() => import('./run-calendar'), 'RunCalendar'), validateSearch: runCalendarFilters }),
  createRoute({ getParentRoute: () => root, path: '/dead-letters', component: lazyRouteComponent(() => import('./dead-letters'), 'DeadLetters'), validateSearch: deadLetterFilters }),
  createRoute({ getParentRoute: () => root, path: '/monitors', component: lazyRouteComponent(() => import('./monitors'), 'Monitors'), validateSearch: monitorFilters }),
  createRoute({ getParentRoute: () => root, path: '/monitors/$id', component: lazyRouteComponent(() => import('./monitor'), 'MonitorScreen') }),
  createRoute({ getParentRoute: () => root, path: '/objectives', component: lazyRouteComponent(() => import('./objectives'), 'Objectives') }),
  createRoute({ getParentRoute: () => root, path: '/calendars', component: lazyRouteComponent(() => import('./calendars'), 'Calendars') }),
  createRoute({ getParentRoute: () => root, path: '/notifications', component: lazyRouteComponent(() => import('./notifications'), 'Notifications') }),
  createRoute({
    getParentRoute: () => root, path: '/notifications/$id', component: lazyRouteComponent(() => import('./notification'), 'NotificationScreen'),
    validateSearch: (search: Record<string, unknown>): { status?: Schemas['NotificationDeliveryStatus'] | undefined } => ({ status: deliveryStatuses.find((one) => one === search['status']) }),
  }),
  createRoute({ getParentRoute: () => root, path: '/functions', component: lazyRouteComponent(() => import('./functions'), 'Functions') }),
  createRoute({ getParentRoute: () => root, path: '/tenant', component: lazyRouteComponent(() => import('./tenant'), 'TenantScreen') }),
  createRoute({ getParentRoute: () => root, path: '/tenants', component: lazyRouteComponent(() => import('./tenants'), 'Tenants'), validateSearch: tenantFilters }),
  createRoute({ getParentRoute: () => root, path: '/tenants/$id', component: lazyRouteComponent(() => import('./tenant-admin'), 'TenantAdmin') }),
  createRoute({ getParentRoute: () => root, path: '/platform', component: lazyRouteComponent(() => import('./platform'), 'Platform'), validateSearch: tabOf('settings') }),
  createRoute({ getParentRoute: () => root, path: '/secrets', component: lazyRouteComponent(() => import('./secrets'), 'Secrets') }),
  createRoute({ getParentRoute: () => root, path: '/keys', component: lazyRouteComponent(() => import('./keys'), 'Keys') }),
  createRoute({ getParentRoute: () => root, path: '/workers', component: lazyRouteComponent(() => import('./workers'), 'Workers'), validateSearch: tabOf('remote') }),
  createRoute({
    getParentRoute: () => root, path: '/audit', component: lazyRouteComponent(() => import('./audit'), 'Audit'),
    validateSearch: (search: Record<string, unknown>): AuditFilters => ({ actor: textOf(search['actor']), action: textOf(search['action']), object: textOf(search['object']) }),
  }),
  createRoute({ getParentRoute: () => root, path: '/executions/$id', component: lazyRouteComponent(() => import('./execution'), 'ExecutionScreen') }),
];

export function makeRouter(queries: QueryClient) {
  return createRouter({
    routeTree: root.addChildren(routes),
    basepath: '/console',
    context: { queries },
    defaultPendingComponent: () => <Loading what="the screen" />,
    defaultNotFoundComponent: Nowhere,
    defaultPendingMs: 100,
  });
}

function Nowhere() {
  return (
    <>
      <Title of="Not found">There is nothing here</Title>
      <Empty title="This address shows no screen."><p><Link to="/jobs" search={{}}>See the jobs</Link></p></Empty>
    </>
  );
}

declare module '@tanstack/react-router' {
  interface Register {
    router: ReturnType<typeof makeRouter>;
  }
}

// The screens that there are, and the permission that each needs.

export const screens = [
  { to: '/', name: 'Overview', needs: 'monitoring:read' },
  { to: '/jobs', name: 'Jobs', needs: 'jobs:read' },
  { to: '/executions', name: 'Executions', needs: 'executions:read' },
  { to: '/run-calendar', name: 'Run calendar', needs: 'jobs:read' },
  { to: '/dead-letters', name: 'Dead letters', needs: 'executions:read' },
  { to: '/monitors', name: 'Monitors', needs: 'monitors:read' },
  { to: '/objectives', name: 'Objectives', needs: 'monitoring:read' },
  { to: '/calendars', name: 'Calendars', needs: 'jobs:read' },
  { to: '/notifications', name: 'Notifications', needs: 'notifications:read' },
  { to: '/functions', name: 'Functions', needs: 'functions:read' },
  { to: '/secrets', name: 'Secrets', needs: 'secrets:read' },
  { to: '/workers', name: 'Workers and queues', needs: 'monitoring:read' },
  { to: '/tenant', name: 'Limits and use', needs: 'tenant:read' },
  { to: '/keys', name: 'API keys', needs: 'keys:read' },
  { to: '/audit', name: 'Audit log', needs: 'audit:read' },
  { to: '/tenants', name: 'Tenants', needs: 'tenants:read' },
  { to: '/platform', name: 'Platform', needs: 'tenants:read' },
] as const;

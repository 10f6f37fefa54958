package fault

// Code is the stable name that a client's program branches on. Each is described in
// docs/reference/errors.md.
type Code string

// The codes.
const (
	CodeValidationFailed      Code = "VALIDATION_FAILED"
	CodeInvalidCronExpression Code = "INVALID_CRON_EXPRESSION"
	CodeInvalidJobConfig      Code = "INVALID_JOB_CONFIG"
	CodeUnauthorized          Code = "UNAUTHORIZED"
	CodeForbidden             Code = "FORBIDDEN"
	CodeQuotaExceeded         Code = "QUOTA_EXCEEDED"
	CodeNotFound              Code = "NOT_FOUND"
	CodeJobNotFound           Code = "JOB_NOT_FOUND"
	CodeVersionNotFound       Code = "VERSION_NOT_FOUND"
	CodeExecutionNotFound     Code = "EXECUTION_NOT_FOUND"
	CodeBackfillNotFound      Code = "BACKFILL_NOT_FOUND"
	CodeCalendarNotFound      Code = "CALENDAR_NOT_FOUND"
	CodeSecretNotFound        Code = "SECRET_NOT_FOUND"
	CodeAPIKeyNotFound        Code = "API_KEY_NOT_FOUND"
	CodeTenantNotFound        Code = "TENANT_NOT_FOUND"
	CodeMethodNotAllowed      Code = "METHOD_NOT_ALLOWED"
	CodeNotAcceptable         Code = "NOT_ACCEPTABLE"
	CodeConflict              Code = "CONFLICT"
	CodeExecutionFinished     Code = "EXECUTION_FINISHED"
	CodeExecutionNotOver      Code = "EXECUTION_NOT_OVER"
	CodeJobAlreadyRunning     Code = "JOB_ALREADY_RUNNING"
	CodeTooManyBackfills      Code = "TOO_MANY_BACKFILLS"
	CodePreconditionFailed    Code = "PRECONDITION_FAILED"
	CodeBodyTooLarge          Code = "BODY_TOO_LARGE"
	CodeUnsupportedMediaType  Code = "UNSUPPORTED_MEDIA_TYPE"
	CodeIdempotencyKeyReused  Code = "IDEMPOTENCY_KEY_REUSED"
	CodeStatsRangeTooLarge    Code = "STATS_RANGE_TOO_LARGE"
	CodeRateLimited           Code = "RATE_LIMITED"
	CodeInternalError         Code = "INTERNAL_ERROR"
	CodeUnavailable           Code = "UNAVAILABLE"
	CodeSecretsNotConfigured  Code = "SECRETS_NOT_CONFIGURED"
	CodeNotReached            Code = "NOT_REACHED"
	CodeLockAcquisitionFailed Code = "LOCK_ACQUISITION_FAILED"
	CodeLockLost              Code = "LOCK_LOST"
)

/*-------------------------------------------------------------------------
 *
 * task_settings.c
 *	  The settings that a task asks for.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/guc.h"
#include "utils/jsonb.h"
#include "utils/numeric.h"

#include "task.h"

/*
 * Sets each setting of an object, for good or (not `really`) only to see whether
 * it could be, as a role could SET it. Raises 22023, 42501, 42704.
 */
void
task_apply_settings(Jsonb *settings, Oid role, bool really)
{
	JsonbIterator *iterator = JsonbIteratorInit(&settings->root);
	JsonbIteratorToken token;
	JsonbValue	item;
	char	   *name = NULL;

	while ((token = JsonbIteratorNext(&iterator, &item, true)) != WJB_DONE)
	{
		char	   *value = NULL;

		if (token == WJB_KEY)
			name = pnstrdup(item.val.string.val, item.val.string.len);
		if (token != WJB_VALUE)
			continue;
		if (item.type == jbvString)
			value = pnstrdup(item.val.string.val, item.val.string.len);
		else if (item.type == jbvNumeric)
			value = DatumGetCString(DirectFunctionCall1(numeric_out, NumericGetDatum(item.val.numeric)));
		else if (item.type == jbvBool)
			value = item.val.boolean ? "on" : "off";
		else
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("invalid value for setting \"%s\" of a task", name),
					 errdetail("It must be a string, a number, true or false.")));
		(void) set_config_option(name, value, superuser_arg(role) ? PGC_SUSET : PGC_USERSET,
								 really ? PGC_S_SESSION : PGC_S_TEST, GUC_ACTION_SET, really, ERROR, false);
	}
}

/* Checks settings as the task's role, without setting anything. */
void
task_check_settings(Jsonb *settings, Oid role)
{
	Oid			user;
	int			context;

	if (!JB_ROOT_IS_OBJECT(settings))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("settings of a task must be a JSON object")));
	GetUserIdAndSecContext(&user, &context);
	/* an error ends the (sub)transaction, and with it this */
	SetUserIdAndSecContext(role, context | SECURITY_LOCAL_USERID_CHANGE);
	task_apply_settings(settings, role, false);
	SetUserIdAndSecContext(user, context);
}

"""Workers: processes that run methods of active objects beside this one."""

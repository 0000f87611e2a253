from alembic import context

from models import Base, engine

options = context.get_x_argument(as_dictionary=True)
with engine.connect() as connection:
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        compare_server_default="compare_server_default" in options,
    )
    with context.begin_transaction():
        context.run_migrations()

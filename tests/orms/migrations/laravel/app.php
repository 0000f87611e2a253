<?php
require 'Illuminate/Database/autoload.php';
require 'Illuminate/Filesystem/autoload.php';

use Illuminate\Container\Container;
use Illuminate\Database\Capsule\Manager;
use Illuminate\Database\Eloquent\Model;
use Illuminate\Database\Migrations\DatabaseMigrationRepository;
use Illuminate\Database\Migrations\Migrator;
use Illuminate\Filesystem\Filesystem;
use Illuminate\Support\Facades\Facade;

class Author extends Model
{
    protected $guarded = [];

    public function books()
    {
        return $this->hasMany(Book::class);
    }
}

class Book extends Model
{
    protected $guarded = [];

    public function copies()
    {
        return $this->hasMany(Copy::class);
    }
}

class Copy extends Model
{
}

$container = new Container();
$manager = new Manager($container);
$manager->addConnection(['driver' => 'pgsql', 'host' => getenv('PGHOST'), 'port' => getenv('PGPORT'), 'username' => getenv('PGUSER'),
    'database' => getenv('PGDATABASE'), 'charset' => 'utf8', 'prefix' => '', 'schema' => 'public']);
$manager->setAsGlobal();
$manager->bootEloquent();
$databases = $manager->getDatabaseManager();
$container->instance('db', $databases);
Facade::setFacadeApplication($container);
$side = $argv[1];
if ($side === 'migrate' || $side === 'rollback') {
    $repository = new DatabaseMigrationRepository($databases, 'migrations');
    if (!$repository->repositoryExists()) {
        $repository->createRepository();
    }
    $migrator = new Migrator($repository, $databases, new Filesystem());
    $side === 'migrate' ? $migrator->run([__DIR__ . '/migrations']) : $migrator->rollback([__DIR__ . '/migrations']);
    exit();
}
Manager::connection()->transaction(function () use ($side) {
    for ($n = 0; $n < 200; $n++) {
        $author = Author::create(['name' => "$side$n"]);
        foreach ($author->books()->createMany([['title' => "$author->name 0"], ['title' => "$author->name 1"]]) as $book) {
            $book->copies()->create();
        }
    }
});
